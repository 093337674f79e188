"""What running a model over a batch gives, whichever engine ran it."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import Literal, NamedTuple, get_args

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from ham.core.errors import InputError

Entropy = Literal["inverse", "negative", "positive"]
"""The exploration term of a decision: 1/H, which grows without bound as it gets sure, the usual −H, or +H, by
which it gets sure."""

PARTS = ("cross_entropy", "baseline", "reinforce", "exploration", "pull")
"""Of the loss of a batch, which is their sum."""

LEAST_ENTROPY = 1e-3
"""Added to H in α/H. A decision saturated to p = 0 or 1 has H = 0; with this its pull back stays
finite (at most α/(4·LEAST_ENTROPY) on the logit) and vanishes only when it is beyond float32's doubt."""


def require_entropy(kind: str) -> None:
    """Refuse what is no kind of exploration term."""
    if kind not in get_args(Entropy):
        raise InputError(f"entropy must be one of {', '.join(get_args(Entropy))}, got {kind!r}")


@dataclass(frozen=True)
class Penalties:
    """What is asked of a memory in training beyond its outputs. What it costs is part of the loss: who gives
    penalties adds what the run says they cost.
    """

    pull: float = 0.0
    """Weight of h²/2, for every value h that JOIN makes: what stays small stays where it is from level to level, so
    a taller tree looks like those trained on."""
    exploration: float = 0.0
    """Soft attention: weight of the exploration term of every turn, as often as HAM would come to it. Nothing is
    sampled, and yet a probability that has come near 0 or 1 stays there, since its gradient has vanished."""
    entropy: Entropy = "inverse"
    """The kind of that term."""
    tree_clip: float = 0.0
    """Soft attention: the largest component of the gradient of a tree, at every timestep; 0 is any. Every timestep
    rewrites the whole tree, so a gradient that goes back from tree to tree can grow each time. It costs nothing."""

    def __post_init__(self) -> None:
        for name in ("pull", "exploration", "tree_clip"):
            value = getattr(self, name)
            if not (isfinite(value) and value >= 0):
                raise InputError(f"{name} must be finite and not negative, got {value}")
        require_entropy(self.entropy)

    @property
    def of_soft(self) -> str:
        """The first of those that soft attention alone has, if any is asked for."""
        return "exploration" if self.exploration else "tree_clip" if self.tree_clip else ""


NO_PENALTIES = Penalties()


class Networks(NamedTuple):
    """The parts of a model with a memory, which an engine may know."""

    memory: nn.Module
    embed: nn.Module | None
    """None where the memory starts empty."""
    join: nn.Module
    search: nn.Module
    write: nn.Module
    controller: nn.Module | None
    """None where the rows themselves are the queries."""
    output: nn.Module


class Decoding(NamedTuple):
    """The parts of a baseline that write symbols; with attention, what they look at was read before."""

    attention: nn.Module | None
    start: nn.Module | None
    """Makes the first state of the one that reading ended with."""
    decoder: nn.Module
    output: nn.Module


class Stock(NamedTuple):
    """What the first leaves hold at first, in ranges; the others are zeros. The same in all examples."""

    values: Float[Tensor, "kinds size"]
    ends: Int[Tensor, "kinds"]
    """Ascending: the leaves from one end to the next hold one of the values."""


class Order(NamedTuple):
    """What an episode is to do."""

    inputs: Float[Tensor, "batch slots features"]
    """What the leaves hold at first, or a query for every timestep."""
    lengths: Int[Tensor, "batch"] | None
    """Rows in use, where they are what the leaves hold."""
    durations: Int[Tensor, "batch"]
    """Timesteps of each example."""
    uniforms: Float[Tensor, "batch time depth"] | None
    """None is greedy."""
    leaves: int
    timesteps: int
    every: int = 1
    """Timesteps of an output symbol."""
    keep: bool = True
    """Give more than the outputs."""
    final_tree: bool = False
    """Give the tree after the last timestep."""
    places: Int[Tensor, "slots"] | None = None
    """The leaves of the rows, ascending; by default the first ones."""
    start: tuple[Float[Tensor, "batch cells"], Float[Tensor, "batch cells"]] | None = None
    """What the controller starts from; by default zeros."""
    penalties: Penalties = NO_PENALTIES
    stock: Stock | None = None
    """What a memory without EMBED holds at first; by default nothing."""


@dataclass(frozen=True)
class Episode:
    """A whole run: outputs for every symbol and decisions for every timestep.

    Beyond an example's own duration everything is zero (`leaves` is -1). A model that decides
    nothing (soft attention, the baselines) gives decisions of depth 0.
    """

    outputs: Float[Tensor, "batch symbols bits"]
    """Logits of the output bits."""
    turn_logits: Float[Tensor, "batch time depth"]
    """SEARCH before its sigmoid, at every node of the descent."""
    turns: Bool[Tensor, "batch time depth"]
    """The decisions taken; True goes right."""
    leaves: Int[Tensor, "batch time"]
    """The accessed leaf, counted from 0."""
    queries: Float[Tensor, "batch time query"]
    """What guided each descent, without gradient: the learned baseline's input."""
    tree: Float[Tensor, "batch nodes size"] | None = None
    """The memory after the last timestep, if it was asked for."""
    pull: Float[Tensor, ""] | None = None
    """What the pull on JOIN's values costs, if there is one."""
    exploration: Float[Tensor, ""] | None = None
    """What the exploration terms of soft attention cost, if there are any."""

    @property
    def log_probs(self) -> Float[Tensor, "batch time depth"]:
        """Log-probabilities of the decisions taken."""
        return log_prob_of(self.turn_logits, self.turns)

    @property
    def entropies(self) -> Float[Tensor, "batch time depth"]:
        return entropy_of(self.turn_logits)


def log_prob_of(logits: Float[Tensor, "*shape"], turns: Bool[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Log-probability of going where `turns` says, when right has probability sigmoid(logit)."""
    return F.logsigmoid(torch.where(turns, logits, -logits))


def entropy_of(logits: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Entropy of a decision in nats.

    Both terms are positive and vanish together, so nothing cancels however sure the decision is.
    """
    doubt = -logits.abs()
    return F.softplus(doubt) - doubt * torch.sigmoid(doubt)


def exploration_of(entropies: Float[Tensor, "*shape"], kind: Entropy) -> Float[Tensor, "*shape"]:
    """The exploration term of decisions with these entropies, for α = 1."""
    if kind == "inverse":
        return 1 / (entropies + LEAST_ENTROPY)
    return -entropies if kind == "negative" else entropies
