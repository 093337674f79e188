"""In what tree, and from what state, a batch is practised: short inputs in tall trees, controllers that start anywhere.

A tree taller than any trained on looks like none of them, and so does a controller after a thousand timesteps. What
is bounded can be covered by short inputs: their rows lie at random leaves of a tall tree, so that every height has
full, sparse and empty halves, and the controller starts from any state inside its bound.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from ham.config import Architecture, Training
from ham.learn.schedule import Phase
from ham.nn import Start


@dataclass(frozen=True)
class Practice:
    """Shares of batches in taller trees and of examples with other first states; none is the paper."""

    tall: float = 0.0
    tallest: int = 0
    anywhere: float = 0.0
    cells: int = 0
    bound: float = 0.0

    @classmethod
    def of(cls, model: Architecture, training: Training, phase: Phase) -> Practice:
        """That of a phase of a run."""
        return cls(
            tall=training.tall,
            tallest=training.tallest,
            anywhere=training.finish_anywhere if phase == "finish" else training.anywhere,
            cells=model.cells,
            bound=model.cell_bound,
        )

    def tree(
        self, rng: np.random.Generator, rows: int, leaves: int, *, online: bool
    ) -> tuple[int, Int[Tensor, "rows"] | None]:
        """How many leaves a batch's tree has, and where its rows are; the same for all examples.

        What is empty in all of them is computed once, so a taller tree costs little more.
        """
        doublings = (self.tallest // leaves).bit_length() - 1
        if not self.tall or doublings < 1 or rng.random() >= self.tall:
            return leaves, None
        leaves <<= int(rng.integers(1, doublings, endpoint=True))
        if online:
            return leaves, None
        if rng.random() < 0.5:
            places = np.sort(rng.choice(leaves, rows, replace=False))
        else:
            places = np.arange(rows) + rng.integers(leaves - rows, endpoint=True)
        return leaves, torch.from_numpy(places)

    def start(self, rng: np.random.Generator, inputs: int, runs: int = 1) -> Start | None:
        """First states: anywhere inside the bound in a share of the inputs, the same in all runs of one."""
        if not self.anywhere:
            return None
        shape = (inputs, self.cells)
        moved = rng.random((inputs, 1)) < self.anywhere
        cell = (rng.random(shape) * 2 - 1) * self.bound * moved
        state = rng.random(shape) * np.tanh(cell)
        both = (np.repeat(part.astype(np.float32), runs, 0) for part in (state, cell))
        return Start(*(torch.from_numpy(part) for part in both))


PLAIN = Practice()
"""Trees as small as the input, controllers that start at zero."""
