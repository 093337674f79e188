"""`ham check-task`."""

from __future__ import annotations

from typing import Annotated

from tyro.conf import arg

from ham import tasks
from ham.core.text import visible
from ham.tasks.check import check


def check_task(task: Annotated[str, arg(metavar="TASK")], /) -> int:
    """Say what is wrong with a task; exit code 1 if anything is.

    Args:
        task: a task's name, or file.py:Class (which runs that file's code).
    """
    problems = check(tasks.get(task))
    for problem in problems:
        print(visible(problem))
    if not problems:
        print(f"{task}: nothing wrong found")
    return 1 if problems else 0
