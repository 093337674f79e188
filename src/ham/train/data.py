"""The batches of training: each drawn from a generator of its own, so that a run can go on from any of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from ham.config import Run
from ham.core.seeds import Purpose, generator
from ham.core.tree import capacity_for
from ham.models import Model
from ham.tasks import Task
from ham.train.curriculum import Curriculum
from ham.train.objective import Examples


@dataclass(frozen=True)
class Drawn:
    """A batch to train on."""

    examples: Examples
    uniforms: Float[Tensor, "batch time depth"]
    """A random number for each decision."""
    leaves: int
    longest: int
    """Rows of the longest inputs it may have."""


def draw(run: Run, task: Task, model: Model, curriculum: Curriculum, number: int) -> Drawn:
    """Batch `number` of a run, at this stage of its curriculum."""
    data = run.data
    rng = generator(Purpose.TRAINING, run.seed, number)
    longest = curriculum.draw(rng, data.mix, data.train_up_to or data.leaves)
    options = task.practised(run.practice)
    batch, leaves = task.practice(rng, data.batch // data.runs, capacity_for(longest), longest, options)
    examples = Examples.of(batch.repeat(data.runs))
    timesteps = examples.counted.shape[1] * model.every
    shape = (data.batch, timesteps, model.decisions(leaves))
    return Drawn(examples, torch.from_numpy(rng.random(shape, dtype=np.float32)), leaves, longest)
