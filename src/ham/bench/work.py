"""What is timed: batches of Reverse, and one training step of the paper's model on them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from ham import tasks
from ham.config import Run, paper
from ham.train.adam import Adam
from ham.train.flat import FlatParameters
from ham.train.gradient import Cost, Gradient
from ham.train.objective import Examples
from ham.train.practice import scattered

SETTINGS = paper(Run("reverse"))
BATCH = SETTINGS.data.batch
RATE = 1e-3
WEIGHTS = {"reinforce": SETTINGS.main.reinforce, "exploration": SETTINGS.main.exploration}
TASK = tasks.get(SETTINGS.task)


@dataclass(frozen=True)
class Work:
    """A batch and the random numbers of its decisions."""

    leaves: int
    examples: Examples
    uniforms: Float[Tensor, "batch time depth"]
    places: Int[Tensor, "rows"] | None = None
    """The leaves of the rows; by default the first ones."""

    @classmethod
    def draw(cls, rng: np.random.Generator, leaves: int, batch: int = BATCH, *, full: bool = False) -> Work:
        """Inputs of lengths uniform in 1 … n, or all of length n."""
        lengths = TASK.draw_lengths(rng, batch, leaves if full else 1, leaves)
        examples = Examples.of(TASK.sample(rng, batch, leaves, lengths), TASK.outputs)
        return cls(leaves, examples, _uniforms(rng, examples, leaves))

    def in_taller(self, rng: np.random.Generator, leaves: int) -> Work:
        """The same rows at random leaves of a taller tree."""
        places = torch.tensor(scattered(rng, self.examples.inputs.shape[1], leaves))
        uniforms = _uniforms(rng, self.examples, leaves)
        return replace(self, leaves=leaves, uniforms=uniforms, places=places)


def _uniforms(rng: np.random.Generator, examples: Examples, leaves: int) -> Float[Tensor, "batch time depth"]:
    shape = (*examples.counted.shape, leaves.bit_length() - 1)
    return torch.from_numpy(rng.random(shape, dtype=np.float32))


class Trainer:
    """The model with Adam, as `ham.train.loop` trains it; d = l = hidden = 20, depth 2."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = SETTINGS.model.build(TASK)
        self.flat = FlatParameters(self.model)
        self.adam = Adam(self.flat.weights)
        self.gradient = Gradient(self.model, self.flat, SETTINGS)

    def cost(self, work: Work) -> Cost:
        """Forward, objective, backward."""
        return self.gradient.of(
            work.examples,
            work.uniforms,
            leaves=work.leaves,
            reinforce=WEIGHTS["reinforce"],
            exploration=WEIGHTS["exploration"],
            places=work.places,
        )

    def step(self, work: Work) -> None:
        """Forward, objective, backward, clip, Adam."""
        cost = self.cost(work)
        self.adam.step(self.flat.gradient, RATE, scale=min(1.0, SETTINGS.optimiser.clip / cost.norm))
