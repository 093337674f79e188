"""How long a batch's inputs are: the curriculum, and the mixing of sizes."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np


@dataclass(frozen=True)
class Curriculum:
    """Short inputs first: whenever the error falls below a threshold, the next stage has longer ones.

    >>> Curriculum(stages(4, 16, growth=2.0), threshold=0.1).after(error=0.05).longest
    8
    """

    stages: tuple[int, ...]
    """The longest input of each stage."""
    threshold: float
    stage: int = 0

    @property
    def longest(self) -> int:
        return self.stages[self.stage]

    @property
    def complete(self) -> bool:
        return self.stage == len(self.stages) - 1

    def after(self, error: float) -> Curriculum:
        """The curriculum once the current stage was validated with this error."""
        if self.masters(error) and not self.complete:
            return replace(self, stage=self.stage + 1)
        return self

    def masters(self, error: float) -> bool:
        """Whether a stage that was validated with this error is mastered."""
        return error < self.threshold

    def back_to(self, most: int) -> Curriculum:
        """The last stage that has no longer inputs than these."""
        return replace(self, stage=max(sum(longest <= most for longest in self.stages) - 1, 0))

    def draw(self, rng: np.random.Generator, mix: float, most: int) -> int:
        """The longest input of a batch: that of the current stage, or in a share `mix` of batches of any so far.

        Stages above `most` are validated on only.
        """
        trained = [longest for longest in self.stages[: self.stage + 1] if longest <= most]
        if rng.random() >= mix:
            return trained[-1]
        return trained[int(rng.integers(len(trained)))]


def stages(first: int, last: int, growth: float) -> tuple[int, ...]:
    """Lengths from `first` to `last`, each `growth` times the one before, to the integer below.

    >>> stages(8, 32, growth=1.25)
    (8, 10, 12, 15, 18, 22, 27, 32)
    """
    longest = [first]
    while longest[-1] < last:
        longest.append(min(max(int(growth * longest[-1]), longest[-1] + 1), last))
    return tuple(longest)
