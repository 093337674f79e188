"""In what tree, and from what state, a batch is practised: short inputs in tall trees, controllers that start anywhere.

A tree taller than any trained on looks like none of them, and so does a controller after a thousand timesteps. What
is bounded can be covered by short inputs: their rows lie at random leaves of a tall tree, so that every height has
full, sparse and empty halves, and the controller starts from any state inside its bound.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from ham.config import Run
from ham.models import Beforehand, Model, Start
from ham.tasks import Batch, Task
from ham.train.schedule import Phase, settings_of


@dataclass(frozen=True)
class Conditions:
    """Shares of batches in taller trees, of examples with other first states, of hard cases; none is the paper."""

    tall: float = 0.0
    tallest: int = 0
    scattered: float = 0.5
    anywhere: float = 0.0
    cells: int = 0
    bound: float = 0.0
    hard: float = 0.0
    stocked: float = 0.0

    @classmethod
    def of(cls, run: Run, phase: Phase, longest: int) -> Conditions:
        """Those of a phase of a run, where the longest inputs have so many rows."""
        settings = settings_of(run, phase)
        return cls(
            tall=settings.tall if longest >= settings.tall_from else 0.0,
            tallest=run.data.tallest,
            scattered=run.data.scattered,
            anywhere=settings.anywhere,
            cells=run.model.cells,
            bound=run.model.cell_bound,
            hard=settings.hard,
            stocked=settings.stocked,
        )

    @property
    def any(self) -> bool:
        """Whether anything is harder than the paper has it."""
        return bool(self.tall or self.anywhere or self.hard or self.stocked)

    def always(self) -> Conditions:
        """The same in all batches and examples, if it is in any."""
        return replace(self, tall=float(self.tall > 0), anywhere=float(self.anywhere > 0))

    def in_small_trees(self) -> Conditions:
        """For who visits all leaves: trees no taller than needed, and memories that are empty at first."""
        return replace(self, tall=0.0, stocked=0.0)

    def surroundings(
        self, rng: np.random.Generator, drawn: Batch, leaves: int, task: Task, runs: int = 1
    ) -> tuple[int, dict[str, Any]]:
        """Leaves of a batch's tree, and what the model has to be told beside: `places` and `start`, if any."""
        told: dict[str, Any] = {}
        leaves, places = self.tree(rng, drawn.inputs.shape[1], leaves, online=task.online)
        if places is not None:
            told["places"] = torch.from_numpy(places)
        if (start := self.start(rng, len(drawn), runs)) is not None:
            told["start"] = start
        return leaves, told

    def tree(
        self, rng: np.random.Generator, rows: int, leaves: int, *, online: bool
    ) -> tuple[int, Int[ndarray, "rows"] | None]:
        """How many leaves a batch's tree has, and where its rows are; the same for all examples.

        What is empty in all of them is computed once, so a taller tree costs little more. A memory that has fewer
        leaves than rows, which only a data structure can, is to be filled, and stays as it is.
        """
        doublings = (self.tallest // leaves).bit_length() - 1
        if rows > leaves or not self.tall or doublings < 1 or rng.random() >= self.tall:
            return leaves, None
        leaves <<= int(rng.integers(1, doublings, endpoint=True))
        if online:
            return leaves, None
        if rng.random() < self.scattered:
            return leaves, np.array(scattered(rng, rows, leaves), np.int64)
        return leaves, np.arange(rows) + rng.integers(leaves - rows, endpoint=True)

    def partly_full(
        self, rng: np.random.Generator, task: Task, inputs: int, n: int, model: Model
    ) -> tuple[Batch, int, dict[str, Any]]:
        """A batch whose memory holds something at first, its leaves, and what the model has to be told.

        Where order matters, a model that fills its memory from the right finds it filled from there.
        """
        leaves = n << int(rng.integers(max(self.tallest // n, 1).bit_length()))
        batch, told = task.stocked(rng, inputs, n, leaves)
        beforehand = Beforehand(*map(torch.from_numpy, told))
        if task.keeps_order and fills_from_the_right(model, beforehand.rows[0, 0], leaves):
            beforehand = beforehand.mirrored(leaves)
        return batch, leaves, {"beforehand": beforehand}

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


PLAIN = Conditions()
"""Trees as small as the input, controllers that start at zero."""


def fills_from_the_right(model: Model, operation: Float[Tensor, "features"], leaves: int) -> bool:
    """Whether a model does a first operation, on an empty memory, in its right half."""
    one = torch.ones(1, dtype=torch.long)
    with torch.no_grad():
        episode = model(operation[None, None], one, one, leaves=leaves)
    return 2 * int(episode.leaves[0, 0]) >= leaves


def scattered(rng: np.random.Generator, rows: int, leaves: int, first: int = 0) -> list[int]:
    """Leaves for so many rows in a subtree: at each node some go left, some right, or as many as can go one way.

    So there are full, empty and sparse halves, and rows next to each other, at every height.
    """
    if rows in (0, leaves):
        return list(range(first, first + rows))
    half = leaves // 2
    least, most = max(rows - half, 0), min(rows, half)
    left = (least, most, int(rng.integers(least, most, endpoint=True)))[int(rng.integers(3))]
    return scattered(rng, left, half, first) + scattered(rng, rows - left, half, first + half)
