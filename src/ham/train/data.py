"""The batches of training: each drawn from a generator of its own, so that a run can go on from any of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from ham.config import Run
from ham.core.seeds import Purpose, generator
from ham.core.tree import capacity_for
from ham.models import Model
from ham.tasks import Task
from ham.tasks.hard_cases import draw_hard
from ham.train.curriculum import Curriculum
from ham.train.objective import Examples
from ham.train.practice import PLAIN, Conditions


@dataclass(frozen=True)
class Drawn:
    """A batch to train on."""

    examples: Examples
    uniforms: Float[Tensor, "batch time depth"]
    """A random number for each decision."""
    leaves: int
    told: dict[str, Any]
    """What else the model is told: `places` and `start`, if any."""
    longest: int
    """Rows of the longest inputs it may have."""


def draw(
    run: Run,
    task: Task,
    model: Model,
    curriculum: Curriculum,
    number: int,
    conditions: Conditions = PLAIN,
) -> Drawn:
    """Batch `number` of a run, at this stage of its curriculum."""
    data = run.data
    rng = generator(Purpose.TRAINING, run.seed, number)
    longest = curriculum.draw(rng, data.mix, data.train_up_to or data.leaves)
    inputs, slots = data.batch // data.runs, capacity_for(longest)
    if conditions.stocked and rng.random() < conditions.stocked:
        batch, leaves, told = conditions.partly_full(rng, task, inputs, slots, model)
    else:
        if conditions.hard and rng.random() < conditions.hard:
            batch, leaves = draw_hard(rng, task, inputs, slots)
        else:
            batch, leaves = task.practice(rng, inputs, slots, longest, task.practised(run.practice))
        leaves, told = conditions.surroundings(rng, batch, leaves, task, data.runs)
    examples = Examples.of(batch.repeat(data.runs), task.outputs)
    timesteps = examples.counted.shape[1] * model.every
    shape = (data.batch, timesteps, model.decisions(leaves))
    return Drawn(examples, torch.from_numpy(rng.random(shape, dtype=np.float32)), leaves, told, longest)
