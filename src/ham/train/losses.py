"""The terms of the objective, as functions of arrays; they know no model.

Unless they say otherwise, losses are summed over an example's symbols or timesteps and averaged
over the batch.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ham.tasks.codecs import Codec


def symbol_log_prob(
    codec: Codec,
    outputs: Float[Tensor, "batch symbols width"],
    targets: Float[Tensor, "batch symbols width"],
    counted: Float[Tensor, "batch symbols"],
) -> Float[Tensor, "batch symbols"]:
    """log p(y_i | A, x) of every symbol that counts."""
    return codec.log_prob(outputs, targets) * counted


def weights_in_order(log_prob: Float[Tensor, "batch symbols"], rate: float) -> Float[Tensor, "batch symbols"]:
    """How much each symbol counts: as much as those before it are right, e^(rate · their log-probability)."""
    log_prob = log_prob.detach()
    return torch.exp(rate * (log_prob.cumsum(1) - log_prob))


def symbol_hits(
    codec: Codec,
    outputs: Float[Tensor, "batch symbols width"],
    targets: Float[Tensor, "batch symbols width"],
    counted: Float[Tensor, "batch symbols"],
) -> Float[Tensor, "batch symbols"]:
    """Share of the parts of every counted symbol, such as its bits, that are right."""
    return codec.hits(outputs, targets).to(counted.dtype).mean(-1) * counted


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
    codec: Codec,
    outputs: Float[Tensor, "batch symbols width"],
    targets: Float[Tensor, "batch symbols width"],
    counted: Bool[Tensor, "batch symbols"],
) -> Bool[Tensor, "batch symbols parts"]:
    """True for what is wrong in the symbols that count: their bits, or the symbols themselves."""
    return ~codec.hits(outputs, targets) & counted[..., None]


def whole_sequences_wrong(
    codec: Codec,
    outputs: Float[Tensor, "batch symbols width"],
    targets: Float[Tensor, "batch symbols width"],
    counted: Bool[Tensor, "batch symbols"],
) -> Bool[Tensor, "batch"]:
    """True for an example with anything wrong in any symbol that counts."""
    return wrong_parts(codec, outputs, targets, counted).flatten(1).any(1)


__all__ = [
    "baseline_loss",
    "exploration_loss",
    "reinforce_loss",
    "symbol_hits",
    "symbol_log_prob",
    "weights_in_order",
    "whole_sequences_wrong",
    "wrong_parts",
]
