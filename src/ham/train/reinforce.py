"""REINFORCE for a network of one's own: from what it read and what that earned to a loss."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from ham.core.errors import InputError
from ham.models import Read
from ham.ops.episode import Entropy, exploration_of, require_entropy
from ham.train.estimators import Estimator, Outcomes, discounted_returns, estimated, get, normalised
from ham.train.losses import exploration_loss, reinforce_loss


def reinforce(
    reads: Sequence[Read],
    rewards: Shaped[Tensor, "batch time"],
    *,
    discount: float = 1.0,
    baseline: str | Estimator | Float[Tensor, "batch time"] = "leave-one-out",
    runs: int | None = None,
    normalise: bool = True,
    exploration: float = 0.0,
    entropy: Entropy = "inverse",
    ran: Bool[Tensor, "batch time"] | None = None,
) -> Float[Tensor, ""]:
    """The loss that trains the decisions of a `HAM`: add it to the loss of your outputs.

    Its gradient is the REINFORCE estimate, −advantage · ∇ log p of the decisions taken, summed over timesteps and
    averaged over the batch. The advantage of a timestep is what it earned from then on, compared with a baseline. Reads
    of a `SoftHAM` decide nothing, and their loss is 0: the same network trains soft and hard.

    Args:
        reads: what `attend` gave at each of T timesteps, in their order; each has the whole batch.
        rewards: batch × T, of any type; what was earned at each timestep, with zeros where nothing was. Never
            differentiated.
        discount: γ; what is earned k timesteps later counts γ^k.
        baseline: what a return is compared with. "leave-one-out": the mean of the other runs of the same input.
            "none": nothing. A tensor, batch × T: what a layer of yours expects of each timestep, say of its query
            (detached); its mean squared error is added to the loss, so that it learns to. Or an estimator, a function
            as in `ham.train.estimators`.
        runs: runs of the same input that lie side by side in the batch; by default all of it counts as one input's.
        normalise: divide the advantages of a timestep by their root mean square over the batch.
        exploration: α; weight of the exploration term of every decision, which keeps it from getting sure too early.
        entropy: that term: "inverse" is the paper's α/H, "negative" the usual −α·H, "positive" +α·H, by
            which decisions get sure.
        ran: batch × T, bool; the timesteps that an example took part in, by default all.
    """
    batch, time = _shape(reads, rewards, ran)
    require_entropy(entropy)
    for name, value in (("discount", discount), ("exploration", exploration)):
        if not (isfinite(value) and value >= 0):
            raise InputError(f"{name} must be finite and not negative, got {value}")
    discount, exploration = float(discount), float(exploration)
    # Counts and right-or-wrong are rewards too; γ is no whole number.
    rewards = rewards.to(reads[0].log_probs.dtype)
    if not reads[0].turns.shape[-1]:
        return rewards.new_zeros(())
    took_part = rewards.new_ones(batch, time) if ran is None else ran.to(rewards.dtype)
    returns = discounted_returns(rewards.detach() * took_part, discount, every=1)
    function, predictions = _estimator(baseline, (batch, time))
    of_input = batch if runs is None else runs
    if isinstance(baseline, str) and baseline == "leave-one-out" and (of_input < 2 or batch % of_input):
        raise InputError(
            f"leave-one-out needs at least 2 runs of every input, got {of_input} in a batch of {batch}"
        )
    estimate = estimated(function, Outcomes(returns, took_part, of_input, lambda: _given(predictions)))
    advantages = normalised(estimate.advantages, took_part) if normalise else estimate.advantages
    log_probs = torch.stack([read.log_probs for read in reads], 1)
    loss = reinforce_loss(log_probs, advantages, took_part)
    if exploration:
        entropies = torch.stack([read.entropies for read in reads], 1)
        loss = loss + exploration * exploration_loss(exploration_of(entropies, entropy), took_part)
    return loss if estimate.loss is None else loss + estimate.loss


def _shape(reads: Sequence[Read], rewards: Tensor, ran: Tensor | None) -> tuple[int, int]:
    if not reads:
        raise InputError("reinforce needs at least one read")
    expected = (len(reads[0].leaf), len(reads))
    for name, given in (("rewards", rewards), ("ran", ran)):
        if given is not None and tuple(given.shape) != expected:
            raise InputError(f"{name} must have shape {expected} (batch, reads), got {tuple(given.shape)}")
    if ran is not None and ran.dtype != torch.bool:
        raise InputError(f"ran must be bool, got {ran.dtype}")
    if any(read.turns.shape != reads[0].turns.shape for read in reads):
        raise InputError("all reads must be of one batch and of trees of the same size")
    return expected


def _estimator(baseline: str | Estimator | Tensor, shape: tuple[int, int]) -> tuple[Estimator, Tensor | None]:
    """How advantages are found, and what a layer of the user's expects, if that is how."""
    if isinstance(baseline, Tensor):
        if tuple(baseline.shape) != shape:
            raise InputError(f"the baseline must have shape {shape}, got {tuple(baseline.shape)}")
        return get("learned"), baseline
    return (get(baseline) if isinstance(baseline, str) else baseline), None


def _given(predictions: Tensor | None) -> Tensor:
    if predictions is None:
        raise InputError("a learned baseline is given as a tensor of what it expects, batch × reads")
    return predictions
