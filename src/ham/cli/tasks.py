"""`ham tasks` and `ham check-task`."""

from __future__ import annotations

from typing import Annotated

from tyro.conf import arg

from ham import tasks as all_tasks
from ham.tasks.check import check


def tasks() -> None:
    """List the tasks that can be named: the paper's, and those of installed packages."""
    from ham import show

    rows = []
    for name in all_tasks.names():
        task = all_tasks.get(name)
        rows.append((task.name, task.summary, str(task.features), str(task.bits), task.example))
    show.table(("task", "what", "input", "output", "example"), rows, right=("input", "output"))


def check_task(task: Annotated[str, arg(metavar="TASK")], /) -> int:
    """Say what is wrong with a task; exit code 1 if anything is.

    Args:
        task: a task's name, or file.py:Class (which runs that file's code).
    """
    problems = check(all_tasks.get(task))
    for problem in problems:
        print(problem)
    if not problems:
        print(f"{task}: nothing wrong found")
    return 1 if problems else 0
