"""The page with a model in it, and a question to open it on: `ham.view`."""

from __future__ import annotations

import html
import logging
import shutil
import tempfile
import webbrowser
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ham.core.errors import InputError
from ham.core.files import write_whole
from ham.core.text import visible
from ham.runs import CHECKPOINT, PRETRAINED, ModelLike, Trained, load, loaded
from ham.tasks import Task
from ham.use.trace import portable, traces
from ham.view.page import KNOWN, MOST_ROWS, page, prepared

SIZES = (4, 8, 16, 32)
"""Most rows of the questions that a page of an own task is given besides the one asked for."""
HEIGHT = 720
"""Of the page in a notebook, in pixels."""

_log = logging.getLogger("ham")


@dataclass(frozen=True, repr=False)
class Page:
    """The page, as one HTML text that needs no network; in a notebook it shows itself."""

    html: str
    task: str | None
    """The task that it opens on."""

    def save(self, path: str | Path | None = None) -> Path:
        """Write it to a file, a temporary one if none is named."""
        if path is None:
            return self._save_aside()
        path = Path(path)
        if not path.parent.is_dir():
            raise InputError(f"there is no folder {path.parent} to write {path.name} into")
        write_whole(path, self.html.encode())
        return path

    def _save_aside(self) -> Path:
        """In a folder of its own, which does not stay where the page cannot be written."""
        folder = tempfile.mkdtemp(prefix="ham-")
        try:
            return self.save(Path(folder, "ham.html"))
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise

    def open(self, path: str | Path | None = None) -> Path:
        """Write it likewise, and open it in the browser."""
        path = self.save(path)
        if not webbrowser.open(path.resolve().as_uri()):
            _log.warning("no browser could be started; open %s yourself", visible(path))
        return path

    def __repr__(self) -> str:
        return f"Page({self.task or KNOWN[0]!r}, {len(self.html) // 1000} kB); .open() shows it, .save(path) writes it"

    def _repr_html_(self) -> str:
        """A frame of its own, so that neither the page nor the notebook gets the other's style."""
        inside = html.escape(self.html, quote=True)
        style = f"width:100%;height:{HEIGHT}px;border:1px solid #8886;border-radius:.4em"
        return f'<iframe srcdoc="{inside}" style="{style}" title="The memory at work"></iframe>'


def view(
    model: ModelLike | None = None,
    question: Any = None,
    *,
    task: str | Task | None = None,
) -> Page:
    """A page that shows the memory at work on any input you type; it holds every shipped model.

    In a notebook it shows itself; `.open()` shows it in the browser, `.save(path)` writes it. Of a task of your own it
    holds the question, and some random ones.

    Args:
        model: a trained model, or what `ham.load` takes, to open it on; by default the first of the shipped ones.
        question: the input to open it with, as `ham.solve` takes it.
        task: another task than the one the model was trained on.
    """
    if model is None:
        if question is not None:
            raise InputError("an input needs a model before it: ham.view(MODEL, INPUT)")
        own = None
    else:
        own = loaded(model, task)
    asked = None if own is None or question is None else _asked(own.task, question)
    text = None if own is None or asked is None else own.task.show(asked)
    known = [trained for trained in (*shipped(), *([own] if own else [])) if trained.task.name in KNOWN]
    models = {trained.task.name: portable(trained) for trained in known}
    if not models and not own:
        raise InputError("no model is shipped with this version; give one you trained")
    others = [_prepared(own, asked)] if own and own.task.name not in KNOWN else []
    name = own.task.name if own else None
    return Page(page(list(models.values()), name, text, own=others), name)


def _asked(task: Task, question: Any) -> Any:
    """A question of as many rows as the page can draw."""
    asked = task.parse(question) if isinstance(question, str) else question
    if len(task.encode(asked)) > MOST_ROWS:
        raise InputError(f"the page draws inputs of up to {MOST_ROWS:,} rows; ham.trace takes longer ones")
    return asked


def _prepared(trained: Trained, asked: Any) -> dict[str, Any]:
    """A task of one's own with the question asked, or its example, and random ones of several sizes.

    All that the task must be able to do for it is `show`.
    """
    task = trained.task
    rng = np.random.default_rng(0)
    if asked is None and task.example:
        asked = task.parse(task.example)
    questions = [] if asked is None else [asked]
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
    return [load(PRETRAINED / name) for name in KNOWN if (PRETRAINED / name / CHECKPOINT).is_file()]


__all__ = ["Page", "shipped", "view"]
