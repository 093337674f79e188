"""What is trained and validated on."""

from __future__ import annotations

from dataclasses import dataclass

from ham.config.checks import require, require_finite, require_in_range, require_shares, require_types


@dataclass(frozen=True)
class Data:
    """Batches, and the curriculum that makes their inputs longer."""

    batch: int = 64
    """Sampled runs in a batch."""
    runs: int = 1
    """Sampled runs of each input; more than one gives the leave-one-out baseline its peers."""
    batches: int = 1000
    """Batches in an epoch."""
    validation: int = 10_000
    """Examples on which the model is validated after each epoch."""
    start: int = 4
    """Leaves of the first tree of the curriculum."""
    leaves: int = 32
    """Leaves of its last tree."""
    train_up_to: int = 0
    """Leaves of the largest tree that is trained on; 0 is all of them. Below `leaves`, validation goes
    further than training, which tells how a recipe generalises without a look at longer test inputs."""
    threshold: float = 0.2
    """Validation error, on the paper's questions, below which inputs get longer."""
    harder: float = 1.0
    """Not before the error is this low where half of the questions are as hard as is practised, too; 1 never waits."""
    growth: float = 2.0
    """By what factor. With 2 the tree doubles each time, which is the paper's curriculum; below, inputs of several
    lengths have the same tree, the smallest that holds them."""
    mix: float = 0.3
    """Share of batches whose tree is drawn from all sizes so far instead of the current one."""
    tallest: int = 1024
    """Leaves of the tallest tree that a short input may lie in, where a phase has such (`tall`)."""
    scattered: float = 0.5
    """Share of such inputs whose rows lie at random leaves, with gaps; those of the others lie next to each other."""

    def __post_init__(self) -> None:
        require_types(self)
        for name in ("start", "leaves", "tallest"):
            value = getattr(self, name)
            require(value >= 1 and not value & (value - 1), f"{name} must be a power of two, got {value}")
        require_in_range(self, "batch", "runs", "batches", "validation", "start", "leaves", "tallest")
        require(self.start <= self.leaves, f"start {self.start} is larger than leaves {self.leaves}")
        require(
            self.train_up_to == 0 or self.start <= self.train_up_to <= self.leaves,
            f"train_up_to must be 0 or lie in {self.start} … {self.leaves}, got {self.train_up_to}",
        )
        require(self.batch % self.runs == 0, f"batch {self.batch} is no multiple of runs {self.runs}")
        require(1 < self.growth <= 2, f"growth must be above 1 and at most 2, got {self.growth}")
        require_shares(self, "mix", "threshold", "harder", "scattered")
        require_finite(self)
