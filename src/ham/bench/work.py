"""What is timed: batches of Reverse, and one training step of the paper's model on them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from ham import tasks
from ham.config import Architecture, Training
from ham.learn.adam import Adam
from ham.learn.flat import FlatParameters
from ham.learn.objective import Examples, objective

BATCH = 50
SETTINGS = Training.paper(batch=BATCH)
RATE = 1e-3
TASK = tasks.get("reverse")


@dataclass(frozen=True)
class Work:
    """A batch and the random numbers of its decisions."""

    leaves: int
    examples: Examples
    uniforms: Float[Tensor, "batch time depth"]

    @classmethod
    def draw(cls, rng: np.random.Generator, leaves: int, batch: int = BATCH, *, full: bool = False) -> Work:
        """Inputs of lengths uniform in 1 … n, or all of length n."""
        lengths = TASK.draw_lengths(rng, batch, leaves if full else 1, leaves)
        examples = Examples.of(TASK.sample(rng, batch, leaves, lengths))
        shape = (batch, examples.counted.shape[1], leaves.bit_length() - 1)
        return cls(leaves, examples, torch.from_numpy(rng.random(shape, dtype=np.float32)))


class Trainer:
    """The model with Adam, as `ham.learn.loop` trains it; d = l = hidden = 20, depth 2."""

    def __init__(self, seed: int = 0):
        torch.manual_seed(seed)
        self.model = Architecture().build(TASK)
        self.flat = FlatParameters(self.model)
        self.adam = Adam(self.flat.weights)

    def episode(self, work: Work):
        examples = work.examples
        return self.model(
            examples.inputs, examples.lengths, examples.asked, leaves=work.leaves, uniforms=work.uniforms
        )

    def step(self, work: Work, episode=None) -> float:
        """Forward, objective, backward, clip, Adam."""
        terms = objective(
            (episode or self.episode)(work),
            work.examples,
            self.model.baseline,
            SETTINGS,
            every=1,
            reinforce=SETTINGS.reinforce,
            exploration=SETTINGS.exploration,
        )
        self.flat.gradient.zero_()
        terms.loss.backward()
        norm = float(torch.linalg.vector_norm(self.flat.gradient))
        if norm > SETTINGS.clip:
            self.flat.gradient.mul_(SETTINGS.clip / norm)
        self.adam.step(self.flat.gradient, RATE)
        return terms.cross_entropy

    def op(self, work: Work):
        """A job that runs the episode forward and backward and nothing else."""
        episode = self.episode(work)
        gradients = [torch.randn_like(episode.outputs), torch.randn_like(episode.turn_logits)]

        def job() -> None:
            episode = self.episode(work)
            torch.autograd.backward([episode.outputs, episode.turn_logits], gradients)

        return job
