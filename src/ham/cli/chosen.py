"""The model that a command runs, by whatever name a person has for it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ham import tasks
from ham.core.errors import InputError

if TYPE_CHECKING:
    from ham.runs import Trained


def chosen(what: str, model: str | None = None, task: str | None = None) -> Trained:
    """The model called `what`, or the one of the task called `what`: `model`, else the shipped one.

    `task` is where the task of the model is, if that is in a file.
    """
    from ham.runs import load, shipped

    if _is_model(what, shipped()):
        if model is not None:
            raise InputError(f"{what} and --model {model} are two models; name one")
        return load(what, task)
    if task not in (None, what):
        raise InputError(f"{what} and --task {task} are two tasks; name one")
    own = tasks.get(what)
    if model is None and own.name not in shipped():
        raise InputError(f"no model of {own.name} is shipped; give one you trained: --model RUN_DIR")
    trained = load(own.name if model is None else model, what if ".py:" in what else None)
    if trained.task.name != own.name:
        raise InputError(f"{model} was trained on {trained.task.name}, not on {own.name}")
    return trained


def _is_model(name: str, shipped: list[str]) -> bool:
    """Whether a name is a model's and not a task's, where it could be both."""
    if ".py:" in name or name.replace("-", "_").lower() in tasks.names():
        return False
    return "/" in name or Path(name).exists() or name in shipped
