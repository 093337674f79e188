"""How a model does on the hard cases of its task, family by family."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from ham.core.errors import InputError
from ham.core.numbers import whole
from ham.core.rows import Rows
from ham.core.seeds import Purpose, generator
from ham.core.tree import depth_of
from ham.runs import ModelLike, Trained, loaded
from ham.tasks import HardCase, Task
from ham.tasks.hard_cases import batch_of
from ham.train.evaluate import LARGEST_BATCH, LEAVES_AT_ONCE, require_finite
from ham.train.losses import whole_sequences_wrong, wrong_parts
from ham.train.objective import Examples
from ham.use.evaluate import chosen_seed, sizes_of

SIZES = (32, 128, 1024)


def stress(
    model: ModelLike,
    *,
    task: str | Task | None = None,
    leaves: int | Sequence[int] = SIZES,
    examples: int = 100,
    seed: int | None = None,
) -> Rows:
    """Count the wrong answers of a trained model to hard questions; a family and a size of the memory a row.

    Args:
        model: a trained model, or what `ham.load` takes: a run's folder, a checkpoint, a name.
        task: another task than the one it was trained on.
        leaves: sizes of the memory, powers of two.
        examples: questions of each family for each size.
        seed: of the questions; by default a new one each time, which is in every row.
    """
    trained = loaded(model, task)
    seed, sizes, examples = chosen_seed(seed), sizes_of(leaves), whole("examples", examples)
    cases = trained.task.hard_cases()
    if not cases:
        raise InputError(f"{trained.task.name} names no hard cases (Task.hard_cases)")
    if examples < 1:
        raise InputError(f"examples must be at least 1, got {examples}")
    rows = Rows()
    for size in sizes:
        depth_of(size)
        rng = generator(Purpose.TEST, seed, size)
        rows += [
            {
                "task": trained.task.name,
                "family": case.name,
                "practised": case.practised,
                "leaves": size,
                "examples": examples,
                "wrong": _wrong(trained, case, size, examples, rng),
                "seed": seed,
            }
            for case in cases
        ]
    return rows


def _wrong(trained: Trained, case: HardCase, leaves: int, examples: int, rng: np.random.Generator) -> int:
    """Whole sequences wrong among so many questions of one family."""
    at_once = max(1, min(LARGEST_BATCH, LEAVES_AT_ONCE // leaves))
    wrong = 0
    with torch.no_grad():
        for done in range(0, examples, at_once):
            count = min(at_once, examples - done)
            questions = [case.draw(rng, leaves) for _ in range(count)]
            given = Examples.of(batch_of(trained.task, questions), trained.task.outputs)
            outputs = trained.model(
                given.inputs, given.lengths, given.asked, leaves=leaves, keep=False
            ).outputs
            require_finite(outputs, leaves)
            missed = wrong_parts(given.hits(outputs), given.counted)
            wrong += int(whole_sequences_wrong(missed).sum())
    return wrong


__all__ = ["SIZES", "stress"]
