"""`ham view`: the memory at work, in a page of one file."""

from __future__ import annotations

import sys
import tempfile
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ham.cli.arguments import optional
from ham.core.errors import InputError
from ham.core.text import visible
from ham.view.page import KNOWN, MOST_ROWS, page

if TYPE_CHECKING:
    from ham.runs import Trained


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
    your own input for each.

    Args:
        task: the task to open it on.
        question: the input to open it with, as `ham solve` takes it.
        out: where to write the page; a temporary file if not given.
        no_open: do not open it in the browser.
        model: a run's folder or a checkpoint to show instead of the shipped model of its task.
    """
    from ham import tasks
    from ham.core.files import write_whole
    from ham.runs import load
    from ham.use.trace import portable

    own = None if model is None else load(model, task if task and ".py:" in task else None)
    name = tasks.get(task).name if task else own.task.name if own else None
    if own and name != own.task.name:
        raise InputError(f"{model} was trained on {own.task.name}, not on {name}")
    if name is not None and name not in KNOWN:
        raise InputError(f"the page knows {', '.join(KNOWN)}, not {name}; ham trace works for every task")
    if question is not None and name is None:
        raise InputError("an input needs a task before it: ham view TASK INPUT")
    if question is not None:
        judge = tasks.get(str(name))
        if len(judge.encode(judge.parse(question))) > MOST_ROWS:
            raise InputError(f"the page draws inputs of up to {MOST_ROWS} rows; ham trace takes longer ones")
    models = {trained.task.name: portable(trained) for trained in (*shipped(), *([own] if own else []))}
    if not models:
        raise InputError("no model is shipped with this version; give one you trained: --model RUN_DIR")
    if name is not None and name not in models:
        raise InputError(f"no model of {name} is shipped; give one you trained: --model RUN_DIR")
    text = page(list(models.values()), name, question)
    path = Path(tempfile.mkdtemp(prefix="ham-")) / "ham.html" if out is None else out
    if not path.parent.is_dir():
        raise InputError(f"there is no folder {path.parent} to write {path.name} into")
    write_whole(path, text.encode())
    print(visible(path))
    if not no_open and not webbrowser.open(path.resolve().as_uri()):
        print(f"no browser could be started; open {visible(path)} yourself", file=sys.stderr)


def shipped() -> list[Trained]:
    """Every shipped model that the page can show."""
    from ham.runs import CHECKPOINT, PRETRAINED, load

    return [load(PRETRAINED / name) for name in KNOWN if (PRETRAINED / name / CHECKPOINT).is_file()]
