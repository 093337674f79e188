"""`ham view`: the memory at work, in a page of one file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from ham.cli import engine
from ham.cli.arguments import Backend, optional
from ham.cli.chosen import chosen
from ham.core.errors import InputError
from ham.core.files import require_room
from ham.core.text import visible


def view(
    what: Annotated[str | None, optional("TASK_OR_MODEL")] = None,
    question: Annotated[str | None, optional("INPUT")] = None,
    /,
    *,
    out: Annotated[Path | None, optional("FILE")] = None,
    no_open: bool = False,
    model: Annotated[str | None, optional("NAME_OR_DIR")] = None,
    task: Annotated[str | None, optional("FILE.PY:CLASS")] = None,
    backend: Backend = None,
) -> None:
    """Write a page that shows the memory at work, and open it in the browser.

    The page is one file that needs no network; it holds every shipped model, and lets you type
    your own input for each. Of a task of your own it holds INPUT, and some random ones.

    Args:
        what: the task to open it on, or a model: a run's folder, a checkpoint, a shipped one's name.
        question: the input to open it with, as `ham solve` takes it.
        out: where to write the page; a temporary file if not given.
        no_open: do not open it in the browser.
        model: of a task, another model than the shipped one.
        task: of a model whose task is in a file, where that is; runs that file's code.
    """
    from ham.view.watch import view as watched

    if out is not None:
        require_room(out)
    if what is None:
        what, model = model, None
    if what is None and (question is not None or task is not None):
        raise InputError("name a task or a model first: ham view TASK_OR_MODEL INPUT")
    engine.prepare(backend, None)
    page = watched(None if what is None else chosen(what, model, task), question)
    print(visible(page.save(out) if no_open else page.open(out)))
