"""The error of a trained model by the paper's protocol, or as asked for, in plain rows."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Sequence
from typing import Any

from ham.core.errors import InputError
from ham.core.numbers import whole
from ham.core.rows import Rows
from ham.runs import ModelLike, Trained, loaded
from ham.tasks import Task
from ham.train.evaluate import evaluate_at, lengths_for
from ham.train.progress import counting


def evaluate(
    model: ModelLike,
    *,
    task: str | Task | None = None,
    leaves: int | Sequence[int] = (),
    lengths: tuple[int, int] | None = None,
    examples: int = 2500,
    seed: int | None = None,
    progress: bool = True,
) -> Rows:
    """Measure the error of a trained model on fresh examples, greedily; a size of the memory a row.

    Without `leaves`: the paper's test (n leaves as in training, lengths 1 to n) and its generalisation (4n leaves,
    lengths 2n+1 to 4n).

    Args:
        model: a trained model, or what `ham.load` takes: a run's folder, a checkpoint, a name.
        task: another task than the one it was trained on.
        leaves: sizes of the memory, powers of two.
        lengths: rows of the questions, from and to; by default 1 to n up to the trained size, the upper half of a
            larger memory.
        examples: questions for each size.
        seed: of the questions; by default a new one each time, which is in every row.
        progress: show a bar, on a terminal or in a notebook.
    """
    trained = loaded(model, task)
    seed, examples = chosen_seed(seed), whole("examples", examples)
    if lengths is not None:
        low, high = lengths
        lengths = whole("lengths", low), whole("lengths", high)
    sizes = sizes_of(leaves) or (trained.run.data.leaves, 4 * trained.run.data.leaves)
    return Rows([_row(trained, size, lengths, examples, seed, progress) for size in sizes])


def sizes_of(leaves: int | Sequence[int]) -> tuple[int, ...]:
    """One size or several, as several."""
    several = leaves if isinstance(leaves, Iterable) else (leaves,)
    return tuple(whole("leaves", size) for size in several)


def chosen_seed(seed: int | None) -> int:
    """The seed that was given, or a new one."""
    if seed is None:
        return secrets.randbelow(1 << 32)
    if not 0 <= (seed := whole("seed", seed)) < 1 << 63:
        raise InputError(f"seed must lie in 0 … 2^63 - 1, got {seed}")
    return seed


def _row(
    trained: Trained,
    leaves: int,
    lengths: tuple[int, int] | None,
    examples: int,
    seed: int,
    progress: bool,
) -> dict[str, Any]:
    low, high = lengths or lengths_for(leaves, trained.run.data.leaves)
    asked: Any = {"lengths": (low, high), "examples": examples, "seed": seed}
    started = time.monotonic()
    if progress:
        with counting(f"n = {leaves}", examples) as count:
            score = evaluate_at(trained, leaves, progress=count, **asked)
    else:
        score = evaluate_at(trained, leaves, **asked)
    part = trained.task.outputs.part
    return {
        "task": trained.task.name,
        "leaves": leaves,
        "lengths": [high if trained.task.online else low, high],
        "examples": score.examples,
        "wrong": score.wrong,
        "error": score.error,
        "error_interval": list(score.interval),
        f"{part}s": score.parts,
        f"wrong_{part}s": score.wrong_parts,
        f"{part}_error": score.part_error,
        "loss": score.loss,
        "seconds": round(time.monotonic() - started, 3),
        "seed": seed,
    }


__all__ = ["chosen_seed", "evaluate", "sizes_of"]
