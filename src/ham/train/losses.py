"""The terms of the objective, as functions of arrays; they know no model.

Unless they say otherwise, losses are summed over an example's symbols or timesteps and averaged
over the batch.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


def weights_in_order(log_prob: Float[Tensor, "batch symbols"], rate: float) -> Float[Tensor, "batch symbols"]:
    """How much each symbol counts: as much as those before it are right, e^(rate · their log-probability)."""
    log_prob = log_prob.detach()
    return torch.exp(rate * (log_prob.cumsum(1) - log_prob))


def symbol_hits(
    hits: Bool[Tensor, "batch symbols parts"], counted: Float[Tensor, "batch symbols"]
) -> Float[Tensor, "batch symbols"]:
    """Share of the parts of every counted symbol, such as its bits, that are right."""
    return hits.to(counted.dtype).mean(-1) * counted


def moved_right(leaves: Int[Tensor, "batch time"], every: int) -> Bool[Tensor, "batch time"]:
    """Which accesses lie to the right of the one before them, that is of the same symbol."""
    moved = leaves > torch.nn.functional.pad(leaves[:, :-1], (1, 0))
    return moved & (torch.arange(leaves.shape[1], device=leaves.device) % every > 0)


def reinforce_loss(
    log_probs: Float[Tensor, "batch time depth"],
    advantages: Float[Tensor, "batch time"],
    ran: Float[Tensor, "batch time"],
) -> Float[Tensor, ""]:
    """Its gradient is the REINFORCE estimate: −advantage · ∇ log p of the decisions taken."""
    return -(log_probs.sum(-1) * advantages.detach() * ran).sum() / len(log_probs)


def exploration_loss(
    terms: Float[Tensor, "batch time depth"], ran: Float[Tensor, "batch time"]
) -> Float[Tensor, ""]:
    """The exploration terms of all decisions, for α = 1."""
    return (terms * ran[..., None]).sum() / len(terms)


def baseline_loss(
    predictions: Float[Tensor, "batch time"],
    returns: Float[Tensor, "batch time"],
    ran: Float[Tensor, "batch time"],
) -> Float[Tensor, ""]:
    """Mean squared error of the learned baseline.

    A mean over timesteps, not a sum: large returns early in training must not eat up the clipped
    gradient of everything else.
    """
    return ((predictions - returns.detach()).square() * ran).sum() / ran.sum().clamp(min=1)


def wrong_parts(
    hits: Bool[Tensor, "batch symbols parts"], counted: Bool[Tensor, "batch symbols"]
) -> Bool[Tensor, "batch symbols parts"]:
    """True for what is wrong in the symbols that count."""
    return ~hits & counted[..., None]


def whole_sequences_wrong(wrong: Bool[Tensor, "batch symbols parts"]) -> Bool[Tensor, "batch"]:
    """True for an example with anything wrong."""
    return wrong.flatten(1).any(1)


__all__ = [
    "baseline_loss",
    "exploration_loss",
    "moved_right",
    "reinforce_loss",
    "symbol_hits",
    "weights_in_order",
    "whole_sequences_wrong",
    "wrong_parts",
]
