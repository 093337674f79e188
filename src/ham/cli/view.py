"""`ham view`: the memory at work, in a page of one file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from ham.cli.arguments import optional
from ham.core.errors import InputError
from ham.core.text import visible


def view(
    task: Annotated[str | None, optional("TASK")] = None,
    question: Annotated[str | None, optional("INPUT")] = None,
    /,
    *,
    out: Annotated[Path | None, optional("FILE")] = None,
    no_open: bool = False,
    model: Annotated[str | None, optional("NAME_OR_DIR")] = None,
) -> None:
    """Write a page that shows the memory at work, and open it in the browser.

    The page is one file that needs no network; it holds every shipped model, and lets you type
    your own input for each. Of a task of your own it holds INPUT, and some random ones.

    Args:
        task: the task to open it on.
        question: the input to open it with, as `ham solve` takes it.
        out: where to write the page; a temporary file if not given.
        no_open: do not open it in the browser.
        model: a run's folder or a checkpoint to show instead of the shipped model of its task.
    """
    from ham import tasks
    from ham.runs import load, shipped
    from ham.view.watch import view as watched

    own = None if model is None else load(model, task if task and ".py:" in task else None)
    judge = tasks.get(task) if task else own.task if own else None
    if own and judge and judge.name != own.task.name:
        raise InputError(f"{model} was trained on {own.task.name}, not on {judge.name}")
    if judge is None and question is not None:
        raise InputError("an input needs a task before it: ham view TASK INPUT")
    if own is None and judge and judge.name not in shipped():
        raise InputError(f"no model of {judge.name} is shipped; give one you trained: --model RUN_DIR")
    page = watched(own or (judge.name if judge else None), question)
    print(visible(page.save(out) if no_open else page.open(out)))
