"""What is descended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ham.config.checks import require_finite, require_shares, require_types


@dataclass(frozen=True)
class Objective:
    """The terms of the loss, and how REINFORCE estimates its gradient."""

    reward: Literal["hamming", "log-probability"] = "hamming"
    """What REINFORCE maximises: output bits that are right, or their log-probability."""
    discount: float = 0.9
    """Discount γ of later rewards, per timestep."""
    baseline: str = "learned"
    """What returns are compared with: learned, leave-one-out (of several runs of each input), none, or an estimator of
    one's own, file.py:function, which runs that file's code."""
    normalise: bool = True
    """Divide advantages by their root mean square at each timestep."""
    entropy: Literal["inverse", "negative"] = "inverse"
    """The exploration term: α/H(p), or the usual −αH(p). With soft attention, of every turn, times the probability
    of coming to it."""
    rightward: float = 0.0
    """Reward of an access that lies to the right of the one before it, if both make one symbol, in runs without a wrong
    symbol: of orders that earn the same, one is then worth more. For models with several accesses a symbol
    (`model.every`)."""
    pull: float = 0.0
    """Weight of h²/2, over the values h that JOIN makes in an example. Without it they grow from level to level, and a
    tree taller than those trained on looks like none of them."""

    def __post_init__(self) -> None:
        require_types(self)
        require_shares(self, "discount")
        require_finite(self)
