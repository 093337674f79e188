"""From rewards to advantages: what REINFORCE multiplies the gradient of each timestep's decisions with.

An estimator is a function of arrays, from the `Outcomes` of a batch to an advantage for every timestep of every
run. It is known by its name once it is entered with `estimator`; a run names it in `objective.baseline`. One in a
file of the user's own is named `file.py:function`, and given to training as a function by who trusts the file.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import torch
from jaxtyping import Float
from torch import Tensor

from ham.core import own
from ham.core.errors import InputError
from ham.train.losses import baseline_loss

LEAST_SQUARE = 1e-12
"""Below this mean square all runs did equally well: nothing to learn, and nothing to divide by."""


@dataclass(frozen=True)
class Outcomes:
    """What the sampled runs of a batch came to."""

    returns: Float[Tensor, "batch time"]
    """Discounted rewards from each timestep on."""
    ran: Float[Tensor, "batch time"]
    """1 for the timesteps that an example ran, 0 beyond them."""
    runs: int
    """Runs of each input, which lie side by side."""
    predict: Callable[[], Float[Tensor, "batch time"]]
    """The return that the model's own baseline, a linear layer, expects from each timestep's query."""


@dataclass(frozen=True)
class Estimate:
    """Advantages, and the loss of what was learned to find them, if anything was."""

    advantages: Float[Tensor, "batch time"]
    loss: Float[Tensor, ""] | None = None


Estimator = Callable[[Outcomes], Estimate | Float[Tensor, "batch time"]]
"""One that learns nothing by itself may give the advantages alone."""

_known: dict[str, Estimator] = {}


def estimator(name: str) -> Callable[[Estimator], Estimator]:
    """Decorator that makes an estimator known by a name."""

    def enter(function: Estimator) -> Estimator:
        if name in _known:
            raise InputError(f"two estimators are named {name!r}")
        _known[name] = function
        return function

    return enter


def get(name: str) -> Estimator:
    """The estimator of that name. Naming one in a file does not run the file's code."""
    if own.is_own(name):
        raise InputError(f"the baseline is in a file, {name}: its function has to be given")
    if name not in _known:
        raise InputError(f"no baseline is named {name!r}; there are {', '.join(_known)}, or file.py:function")
    return _known[name]


def from_file(name: str) -> Estimator:
    """The estimator in `file.py:function`; finding it runs the file's code."""
    found = own.from_file(name, "baseline")
    if not callable(found):
        path, _, function = name.rpartition(":")
        raise InputError(f"{path} has no function {function}")
    return found


def estimated(function: Estimator, outcomes: Outcomes) -> Estimate:
    """What an estimator gives, if it is an advantage for every timestep."""
    found = function(outcomes)
    advantages = found.advantages if isinstance(found, Estimate) else found
    expected, got = outcomes.returns.shape, getattr(advantages, "shape", None)
    if got != expected:
        raise InputError(
            f"an estimator gives an advantage for every timestep, {tuple(expected)}, got "
            + (type(found).__name__ if got is None else str(tuple(got)))
        )
    return found if isinstance(found, Estimate) else Estimate(found)


@estimator("learned")
def learned(outcomes: Outcomes) -> Estimate:
    """Compared with what a linear layer expects from the query; it learns to."""
    expected = outcomes.predict()
    loss = baseline_loss(expected, outcomes.returns, outcomes.ran)
    return Estimate(outcomes.returns - expected.detach(), loss)


@estimator("leave-one-out")
def compared_with_peers(outcomes: Outcomes) -> Tensor:
    """Compared with the other runs of the same input."""
    return outcomes.returns - leave_one_out(outcomes.returns, outcomes.runs)


@estimator("none")
def uncompared(outcomes: Outcomes) -> Tensor:
    """The returns themselves."""
    return outcomes.returns


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
