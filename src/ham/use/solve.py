"""A trained model's answer to a person's own question, and whether the oracle agrees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ham.core.errors import InputError
from ham.core.numbers import whole
from ham.core.rows import shortened
from ham.core.tree import capacity_for, depth_of
from ham.runs import ModelLike, Trained, loaded
from ham.tasks import Task
from ham.train.evaluate import LARGEST_BATCH, LEAVES_AT_ONCE, require_finite

MARGIN = 8
"""Output symbols beyond the longest right answer after which a model that has not ended is cut off."""


@dataclass(frozen=True, repr=False)
class Answer:
    """What a model made of a question."""

    question: Any
    answer: list
    expected: list
    """What the task's oracle says."""
    right: bool
    ended: bool
    """Whether the model itself said where its answer ends; always true where the length is given."""
    leaves: int
    """Size of the memory that was used."""

    def __repr__(self) -> str:
        verdict = "right" if self.right else f"wrong, expected={shortened(self.expected)}"
        return f"Answer({shortened(self.answer)}, {verdict}, leaves={self.leaves})"


def solve(
    model: ModelLike, question: Any, *, task: str | Task | None = None, leaves: int | None = None
) -> Answer:
    """Let a trained model answer one question, and say whether the oracle agrees.

    Args:
        model: a trained model, or what `ham.load` takes: a run's folder, a checkpoint, a name.
        question: the task's own values (`[(7, 1), (3, 9)]`), or text as for `ham solve` (`"7:1 3:9"`).
        task: another task than the one it was trained on.
        leaves: size of the memory; by default what the question needs, but not below the smallest of its training.
    """
    return solve_all(model, [question], task=task, leaves=leaves)[0]


def solve_all(
    model: ModelLike,
    questions: Sequence[Any],
    *,
    task: str | Task | None = None,
    leaves: int | None = None,
) -> list[Answer]:
    """Answers to many questions; those that need the same size of memory are run together."""
    trained = loaded(model, task)
    asked = [as_asked(trained.task, question) for question in questions]
    rows = [trained.task.encode(question) for question in asked]
    sizes = [memory_for(trained, len(these)) if leaves is None else whole("leaves", leaves) for these in rows]
    for these, size in zip(rows, sizes, strict=True):
        depth_of(size)
        if len(these) > size:
            raise InputError(f"the question has {len(these)} rows and does not fit into {size} leaves")
    outputs: dict[int, np.ndarray] = {}
    for size in sorted(set(sizes)):
        members = [place for place, its in enumerate(sizes) if its == size]
        at_once = max(1, min(LARGEST_BATCH, LEAVES_AT_ONCE // size))
        for start in range(0, len(members), at_once):
            some = members[start : start + at_once]
            outputs |= zip(some, _run(trained, [rows[place] for place in some], size), strict=True)
    return [_judged(trained, asked[place], outputs[place], size) for place, size in enumerate(sizes)]


def as_asked(task: Task, question: Any) -> Any:
    """The task's own values, where a person may have given text."""
    return task.parse(question) if isinstance(question, str) else question


def memory_for(trained: Trained, length: int) -> int:
    """The smallest memory that holds so many rows and that the model knows from training."""
    return max(capacity_for(length), trained.run.data.start)


def _run(trained: Trained, rows: list[np.ndarray], leaves: int) -> list[np.ndarray]:
    """The output symbols for each question."""
    task = trained.task
    lengths = np.array([len(these) for these in rows])
    inputs = np.zeros((len(rows), lengths.max(), task.features), np.float32)
    for row, these in zip(inputs, rows, strict=True):
        row[: len(these)] = these
    asked = task.symbols(lengths) + MARGIN * task.ends
    with torch.no_grad():
        episode = trained.model(
            torch.from_numpy(inputs),
            torch.from_numpy(lengths),
            torch.from_numpy(asked),
            leaves=leaves,
            keep=False,
        )
    require_finite(episode.outputs, leaves)
    read = task.outputs.read(episode.outputs).float().numpy()
    return [symbols[:count] for symbols, count in zip(read, asked, strict=True)]


def _judged(trained: Trained, question: Any, symbols: np.ndarray, leaves: int) -> Answer:
    task = trained.task
    answer, expected = task.read_answer(question, symbols), task.solve(question)
    ended = not task.ends or bool((symbols[:, -1] > 0.5).any())
    return Answer(question, answer, expected, ended and task.right(answer, expected), ended, leaves)


__all__ = ["MARGIN", "Answer", "as_asked", "memory_for", "solve", "solve_all"]
