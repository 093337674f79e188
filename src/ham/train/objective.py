"""The whole objective of section 2.3: cross-entropy, REINFORCE, exploration and baseline."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from ham.config import Run
from ham.ops import Episode
from ham.ops.episode import exploration_of
from ham.tasks import Batch, Codec
from ham.train import losses
from ham.train.estimators import discounted_returns, leave_one_out, normalised


@dataclass(frozen=True)
class Examples:
    """A task's batch as tensors, and how many output symbols each example is to run for."""

    inputs: Float[Tensor, "batch slots features"]
    lengths: Int[Tensor, "batch"]
    targets: Float[Tensor, "batch symbols width"]
    counted: Bool[Tensor, "batch symbols"]
    asked: Int[Tensor, "batch"]
    codec: Codec
    """What outputs and targets mean."""

    @classmethod
    def of(cls, batch: Batch, codec: Codec) -> Examples:
        symbols = batch.counted.shape[1]
        last = symbols - batch.counted[:, ::-1].argmax(1)
        asked = np.where(batch.counted.any(1), last, 0)
        longest = int(asked.max(initial=1))
        return cls(
            tensor_of(batch.inputs),
            tensor_of(batch.lengths),
            tensor_of(batch.targets[:, :longest]),
            tensor_of(batch.counted[:, :longest]),
            tensor_of(asked),
            codec,
        )

    def log_prob(self, outputs: Float[Tensor, "batch symbols width"]) -> Float[Tensor, "batch symbols"]:
        """log p(y_i | A, x) of every symbol that counts."""
        return self.codec.log_prob(outputs, self.targets) * self.counted.to(outputs.dtype)

    def hits(self, outputs: Float[Tensor, "batch symbols width"]) -> Bool[Tensor, "batch symbols parts"]:
        """Which parts of each symbol, such as its bits, are right."""
        return self.codec.hits(outputs, self.targets)


def tensor_of(array: np.ndarray) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(array))


@dataclass(frozen=True)
class Terms:
    """What a batch cost, and what it was made of."""

    loss: Float[Tensor, ""]
    cross_entropy: float
    entropy: float
    """Mean entropy of a decision, in nats."""
    wrong: float
    """Share of sampled runs with a wrong symbol."""


def objective(
    episode: Episode,
    examples: Examples,
    baseline: nn.Module | None,
    run: Run,
    *,
    every: int,
    reinforce: float,
    exploration: float,
) -> Terms:
    """The loss whose gradient the paper descends, averaged over the batch."""
    settings = run.objective
    depth = episode.turn_logits.shape[-1]
    counted = examples.counted.to(episode.outputs.dtype)
    log_prob = examples.log_prob(episode.outputs)
    cross_entropy = -log_prob.sum() / len(log_prob)
    hits = losses.symbol_hits(examples.hits(episode.outputs.detach()), counted)
    wrong = float((hits < counted).any(-1).to(counted.dtype).mean())
    if depth == 0:
        weighted = log_prob * losses.weights_in_order(log_prob, run.model.soft.in_order)
        return Terms(-weighted.sum() / len(log_prob), float(cross_entropy.detach()), 0.0, wrong)

    time = torch.arange(episode.turn_logits.shape[1])
    ran = (time < (examples.asked * every)[:, None]).to(counted.dtype)
    rewards = hits if settings.reward == "hamming" else log_prob.detach()
    returns = discounted_returns(rewards, settings.discount, every)
    loss = cross_entropy
    if settings.baseline == "learned":
        assert baseline is not None
        predictions = baseline(episode.queries).squeeze(-1)
        loss = loss + losses.baseline_loss(predictions, returns, ran)
        advantages = returns - predictions.detach()
    elif settings.baseline == "leave-one-out":
        advantages = returns - leave_one_out(returns, run.data.runs)
    else:
        advantages = returns
    if settings.normalise:
        advantages = normalised(advantages, ran)
    entropies = episode.entropies
    loss = loss + reinforce * losses.reinforce_loss(episode.log_probs, advantages, ran)
    if exploration > 0:
        terms = exploration_of(entropies, settings.entropy)
        loss = loss + exploration * losses.exploration_loss(terms, ran)
    mean_entropy = (entropies.detach() * ran[..., None]).sum() / (ran.sum() * depth).clamp(min=1)
    return Terms(loss, float(cross_entropy.detach()), float(mean_entropy), wrong)
