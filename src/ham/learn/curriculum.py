"""Which tree a batch uses: the curriculum, and the mixing of sizes."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np


@dataclass(frozen=True)
class Curriculum:
    """Small trees first: the tree doubles whenever the error falls below a threshold.

    >>> Curriculum(now=4, last=16, threshold=0.1).after(error=0.05).now
    8
    """

    now: int
    last: int
    threshold: float

    @property
    def complete(self) -> bool:
        return self.now == self.last

    def after(self, error: float) -> Curriculum:
        """The curriculum once the current tree was validated with this error."""
        if error < self.threshold and not self.complete:
            return replace(self, now=2 * self.now)
        return self

    def draw(self, rng: np.random.Generator, mix: float, smallest: int, largest: int) -> int:
        """Leaves for a batch: the current tree, or in a share `mix` of batches any size so far."""
        now = min(self.now, largest)
        if rng.random() >= mix:
            return now
        sizes = now.bit_length() - smallest.bit_length() + 1
        return smallest << int(rng.integers(sizes))
