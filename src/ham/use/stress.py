"""How a model does on the hard cases of its task, family by family."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from ham.core.errors import InputError
from ham.core.tree import depth_of
from ham.models import Model
from ham.tasks import HardCase, Task
from ham.tasks.hard_cases import batch_of
from ham.train.evaluate import LARGEST_BATCH, LEAVES_AT_ONCE, require_finite
from ham.train.losses import whole_sequences_wrong, wrong_parts
from ham.train.objective import Examples


@dataclass(frozen=True)
class Stressed:
    """Whole sequences wrong among the questions of one family."""

    case: HardCase
    leaves: int
    examples: int
    wrong: int


def stress(
    model: Model, task: Task, *, leaves: int, examples: int, rng: np.random.Generator
) -> list[Stressed]:
    """Run a model greedily on so many questions of each of the task's hard cases."""
    depth_of(leaves)
    if examples < 1:
        raise InputError(f"examples must be at least 1, got {examples}")
    return [_stressed(model, task, case, leaves, examples, rng) for case in task.hard_cases()]


def _stressed(
    model: Model, task: Task, case: HardCase, leaves: int, examples: int, rng: np.random.Generator
) -> Stressed:
    at_once = max(1, min(LARGEST_BATCH, LEAVES_AT_ONCE // leaves))
    wrong = 0
    with torch.no_grad():
        for done in range(0, examples, at_once):
            count = min(at_once, examples - done)
            drawn = batch_of(task, [case.draw(rng, leaves) for _ in range(count)])
            given = Examples.of(drawn, task.outputs)
            outputs = model(given.inputs, given.lengths, given.asked, leaves=leaves, keep=False).outputs
            require_finite(outputs, leaves)
            missed = wrong_parts(given.hits(outputs), given.counted)
            wrong += int(whole_sequences_wrong(missed).sum())
    return Stressed(case, leaves, examples, wrong)
