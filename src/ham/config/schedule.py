"""How long is trained, and at which pace."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ham.config.checks import require, require_finite, require_in_range, require_shares, require_types


@dataclass(frozen=True)
class Optimiser:
    """How a gradient changes the weights."""

    clip: float = 5.0
    """Largest norm of the gradient."""
    averaging: float = 0.999
    """Decay of the moving average of the weights that is evaluated and kept; 0 turns it off."""

    def __post_init__(self) -> None:
        require_types(self)
        require_shares(self, "averaging")
        require_finite(self)


@dataclass(frozen=True)
class Schedule:
    """How many epochs, in an opening phase for short inputs, if there is one, in a main phase, and in an end phase for
    exactness. Each starts from the averaged weights.
    """

    epochs: int = 100
    """Epochs in all, at most."""
    finish: int = 0
    """The last of them, which are the end phase; a shorter run still begins with one epoch of the main phase."""
    main: int = 0
    """Epochs of the main phase, at most, since it began, or began anew; 0: all that the end phase leaves it."""
    opening: int = 0
    """Rows of the longest inputs of the opening phase: once they are mastered, the main phase begins, with inputs as
    long; 0 has none."""
    patience: int = 10
    """The main phase ends after so many epochs on the last stage without a lower validation error; 0: as soon as that
    stage is mastered, as every other ends."""
    restart: bool = False
    """Begin the main phase again whenever inputs get longer: from the averaged weights, with its first learning rate
    and exploration."""
    trial: int = 0
    """Epochs for each stage of the curriculum but the last, within the first phase: a run that has not mastered as
    many in time begins anew with other weights, as often as its epochs allow; 0 never does."""

    def __post_init__(self) -> None:
        require_types(self)
        require_in_range(self, "epochs")
        require(self.patience >= 0, f"patience must not be negative, got {self.patience}")
        require(self.trial >= 0, f"trial must not be negative, got {self.trial}")
        require(self.main >= 0, f"main must not be negative, got {self.main}")
        require(self.opening >= 0, f"opening must not be negative, got {self.opening}")
        require(self.finish >= 0, f"finish must not be negative, got {self.finish}")

    @property
    def end_epochs(self) -> int:
        """Epochs of the end phase."""
        return min(self.finish, self.epochs - 1)

    @property
    def main_epochs(self) -> int:
        """Epochs before the end phase, at most."""
        return self.epochs - self.end_epochs


@dataclass(frozen=True)
class Phase:
    """The pace of a phase, which may fall from epoch to epoch, and what it practises beside the paper's questions."""

    learning_rate: float = 4e-3
    """Of Adam, in its first epoch."""
    learning_rate_decay: float = 0.96
    """Factor on the learning rate after each epoch."""
    reinforce: float = 1.0
    """Weight of the REINFORCE term."""
    exploration: float = 1.5e-3
    """Weight α of the exploration term."""
    exploration_decay: float = 0.95
    """Factor on α after each epoch."""
    exploration_term: Literal["usual", "inverse", "negative", "positive"] = "usual"
    """Which term α is the weight of: usually `objective.entropy`; positive is +αH, by which turns get sure, those too
    that do as well either way."""
    tall: float = 0.0
    """Share of batches whose tree is taller than the input needs, with its rows at random leaves."""
    tall_from: int = 0
    """Not before inputs may have so many rows: what a short input needs is then learned first."""
    anywhere: float = 0.0
    """Share of inputs for which the LSTM starts anywhere inside `model.cell_bound` instead of at zero."""
    hard: float = 0.0
    """Share of batches that are drawn from the task's hard cases, those that may be practised."""
    stocked: float = 0.0
    """Share of batches whose memory is partly full at first: ranges of its leaves are as PUSH, or PUSH and POP, left
    one. A tall tree then has full subtrees of every height, which so few operations could never fill."""

    def __post_init__(self) -> None:
        require_types(self)
        require_shares(
            self, "tall", "anywhere", "hard", "stocked", "learning_rate_decay", "exploration_decay"
        )
        require_finite(self)


END = Phase(learning_rate=1e-3, learning_rate_decay=0.9, reinforce=2.0, exploration=0.0)
"""The end phase does not explore: decisions that are still undecided break long inputs."""
