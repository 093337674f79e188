"""Which network, and how wide."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ham.config.checks import LARGEST, require, require_finite, require_in_range, require_types
from ham.models.controllers import ControllerName, require_bound_fits
from ham.models.joins import JoinForm
from ham.models.kinds import KINDS, Kind, KindName, kind_for

if TYPE_CHECKING:
    from ham.models import Model
    from ham.tasks import Task


@dataclass(frozen=True)
class Soft:
    """How soft attention is trained."""

    sampled: bool = False
    """With turns that are sampled, as hard attention does; before the end phase validated with hard attention too.
    Where all turns are sure, soft attention does the same."""
    tree_clip: float = 0.0
    """The largest component of the gradient of an example's tree, at every timestep; 0 is any."""
    in_order: float = 0.0
    """A symbol's loss counts e^(−in_order · the losses of all symbols before it). What follows a mistake is read from
    a memory that the mistake has spoilt, and its gradient is noise."""

    def __post_init__(self) -> None:
        require_types(self)
        require_finite(self)


@dataclass(frozen=True)
class Architecture:
    """Which network, and how wide."""

    kind: KindName = "lstm+ham"
    """lstm+ham, raw-ham (for data structures), both with soft attention (dham, raw-dham), or a baseline: lstm,
    lstm+a (with attention)."""
    controller: ControllerName = "lstm"
    """What drives the memory: the paper's lstm, gru, or feed-forward, which has no state."""
    cells: int = 20
    """Size l of the LSTM, or of another controller's state."""
    size: int = 20
    """Width d of a value in the memory."""
    hidden: int = 20
    """Hidden width of the memory's networks."""
    depth: int = 2
    """Layers of the memory's networks, 1 or 2."""
    every: int = 1
    """Memory accesses per output symbol (η); a task may fix it."""
    join: JoinForm = "rectified"
    """JOIN as the paper has it; divided by its root mean square; or one that copies up what it does not change."""
    top: float = 0.0
    """Ceiling of what EMBED and a rectified JOIN give, at least 1; 0 is none."""
    grid: int = 0
    """All values in the tree are multiples of 1/grid, a power of two; 0 is any."""
    cell_bound: float = 0.0
    """LSTM cells are clipped to [−cell_bound, cell_bound]; 0 is no bound."""
    soft: Soft = field(default_factory=Soft)

    def __post_init__(self) -> None:
        require_types(self)
        require_bound_fits(self.controller, self.cell_bound)
        require_in_range(self, "cells", "size", "hidden", "every")
        require(self.depth in (1, 2), f"depth must be 1 or 2, got {self.depth}")
        require_finite(self)
        require(self.top == 0 or self.top >= 1, f"top must be 0 or at least 1, got {self.top}")
        require(
            0 <= self.grid <= LARGEST["grid"] and not self.grid & (self.grid - 1),
            f"grid must be 0 or a power of two up to {LARGEST['grid']:,}, got {self.grid}",
        )
        for name in ("controller", "join", "top", "grid", "cell_bound"):
            require(
                name in self.traits.settings or getattr(self, name) == getattr(Architecture, name),
                f"model.{name} is not for {self.kind}",
            )
        require(
            self.traits.soft or not any(vars(self.soft).values()),
            f"model.soft is for models with soft attention, not for {self.kind}",
        )

    @property
    def traits(self) -> Kind:
        """What is true of every model of its kind."""
        return KINDS[self.kind]

    @property
    def learner(self) -> Architecture:
        """What is trained: itself, or, with `soft.sampled`, the same network with hard attention."""
        if not self.soft.sampled:
            return self
        return replace(self, kind=kind_for(bool(self.traits.online)).name, soft=Soft())

    def build(self, task: Task) -> Model:
        """The network for a task, with fresh weights from torch's global generator, always in float32."""
        return self.traits.build(task, self).float()
