"""From rewards to advantages: discounted returns, baselines, normalisation."""

from __future__ import annotations

from functools import lru_cache

import torch
from jaxtyping import Float
from torch import Tensor

LEAST_SQUARE = 1e-12
"""Below this mean square all runs did equally well: nothing to learn, and nothing to divide by."""


def discounted_returns(
    rewards: Float[Tensor, "batch symbols"], discount: float, every: int
) -> Float[Tensor, "batch time"]:
    """Return of each timestep: Σ over later outputs of γ^(timesteps until then) · reward.

    Symbol i is given at timestep i·every (counted from 1), and its own timestep counts fully.
    """
    return rewards @ _discounts(rewards.shape[1], discount, every, rewards.dtype, rewards.device)


@lru_cache(maxsize=64)
def _discounts(symbols: int, discount: float, every: int, dtype, device) -> Float[Tensor, "symbols time"]:
    given_at = (torch.arange(symbols, device=device) + 1) * every - 1
    delay = given_at[:, None] - torch.arange(symbols * every, device=device)
    return torch.where(delay >= 0, discount ** delay.clamp(min=0).to(torch.float64), 0.0).to(dtype)


def leave_one_out(returns: Float[Tensor, "batch time"], runs: int) -> Float[Tensor, "batch time"]:
    """For each run, the mean return of the other runs of the same input (which lie side by side)."""
    of_input = returns.unflatten(0, (-1, runs))
    return ((of_input.sum(1, keepdim=True) - of_input) / (runs - 1)).flatten(0, 1)


def normalised(
    advantages: Float[Tensor, "batch time"], ran: Float[Tensor, "batch time"]
) -> Float[Tensor, "batch time"]:
    """Advantages divided by their root mean square over the batch, timestep by timestep."""
    square = (advantages.square() * ran).sum(0) / ran.sum(0).clamp(min=1)
    return advantages * torch.where(square > LEAST_SQUARE, square, torch.inf).rsqrt()
