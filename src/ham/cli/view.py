"""`ham view`: the memory at work, in a page of one file."""

from __future__ import annotations

import sys
import tempfile
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from ham.cli.arguments import optional
from ham.core.errors import InputError
from ham.core.text import visible
from ham.view.page import KNOWN, MOST_ROWS, page, prepared

if TYPE_CHECKING:
    from ham.runs import Trained

SIZES = (4, 8, 16, 32)
"""Most rows of the questions that a page of an own task is given besides the one asked for."""


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
    from ham.core.files import write_whole
    from ham.runs import load
    from ham.use.trace import portable

    own = None if model is None else load(model, task if task and ".py:" in task else None)
    judge = tasks.get(task) if task else own.task if own else None
    name = judge.name if judge else None
    if own and name != own.task.name:
        raise InputError(f"{model} was trained on {own.task.name}, not on {name}")
    if question is not None:
        if judge is None:
            raise InputError("an input needs a task before it: ham view TASK INPUT")
        asked = judge.parse(question)
        if len(judge.encode(asked)) > MOST_ROWS:
            raise InputError(
                f"the page draws inputs of up to {MOST_ROWS:,} rows; ham trace takes longer ones"
            )
        question = judge.show(asked)
    known = [trained for trained in (*shipped(), *([own] if own else [])) if trained.task.name in KNOWN]
    models = {trained.task.name: portable(trained) for trained in known}
    if not models and not own:
        raise InputError("no model is shipped with this version; give one you trained: --model RUN_DIR")
    if name is not None and name not in models and not own:
        raise InputError(f"no model of {name} is shipped; give one you trained: --model RUN_DIR")
    others = [_prepared(own, question)] if own and name not in KNOWN else []
    text = page(list(models.values()), name, question, own=others)
    path = Path(tempfile.mkdtemp(prefix="ham-")) / "ham.html" if out is None else out
    if not path.parent.is_dir():
        raise InputError(f"there is no folder {path.parent} to write {path.name} into")
    write_whole(path, text.encode())
    print(visible(path))
    if not no_open and not webbrowser.open(path.resolve().as_uri()):
        print(f"no browser could be started; open {visible(path)} yourself", file=sys.stderr)


def _prepared(trained: Trained, asked: str | None) -> dict[str, Any]:
    """A task of one's own with the question asked, or its example, and random ones of several sizes."""
    import numpy as np

    from ham.use.trace import traces

    task = trained.task
    rng = np.random.default_rng(0)
    questions = [task.parse(text) for text in filter(None, (asked or task.example,))]
    for rows in SIZES:
        if rows >= task.shortest:
            lengths = task.draw_lengths(rng, 2, rows // 2, rows)
            batch = task.sample(rng, 2, rows, lengths)
            questions += [
                task.decode(inputs[:length]) for inputs, length in zip(batch.inputs, lengths, strict=True)
            ]
    return prepared(task, traces(trained, questions), trained.run.data.leaves)


def shipped() -> list[Trained]:
    """Every shipped model that the page can show."""
    from ham.runs import CHECKPOINT, PRETRAINED, load

    return [load(PRETRAINED / name) for name in KNOWN if (PRETRAINED / name / CHECKPOINT).is_file()]
