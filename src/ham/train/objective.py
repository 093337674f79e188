"""The whole objective of section 2.3: cross-entropy, REINFORCE, exploration and baseline."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from ham.config import Run
from ham.core.errors import InputError
from ham.ops import Episode
from ham.ops.episode import Entropy, exploration_of
from ham.tasks import Batch, Codec
from ham.train import estimators, losses
from ham.train.estimators import Estimator, Outcomes, discounted_returns, estimated, normalised


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

    parts: dict[str, Float[Tensor, ""]]
    """Of the loss, by their names in `PARTS`."""
    entropy: float
    """Mean entropy of a decision, in nats."""
    wrong: float
    """Share of sampled runs with a wrong symbol."""

    @property
    def loss(self) -> Float[Tensor, ""]:
        """What is descended: the sum of all parts."""
        first, *others = self.parts.values()
        return sum(others, first)


def objective(
    episode: Episode,
    examples: Examples,
    head: nn.Module | None,
    run: Run,
    *,
    every: int,
    reinforce: float,
    exploration: float,
    entropy: Entropy | None = None,
    estimator: Estimator | None = None,
) -> Terms:
    """The loss whose gradient the paper descends, averaged over the batch.

    `head` is the model's own baseline; `entropy` and `estimator` are by default the run's. What penalties cost is the
    episode's.
    """
    settings = run.objective
    depth = episode.turn_logits.shape[-1]
    counted = examples.counted.to(episode.outputs.dtype)
    log_prob = examples.log_prob(episode.outputs)
    hits = losses.symbol_hits(examples.hits(episode.outputs.detach()), counted)
    wrong = float((hits < counted).any(-1).to(counted.dtype).mean())
    penalties = {"exploration": episode.exploration, "pull": episode.pull}
    parts = {name: cost for name, cost in penalties.items() if cost is not None}
    if depth == 0:
        weighted = log_prob * losses.weights_in_order(log_prob, run.model.soft.in_order)
        return Terms({"cross_entropy": -weighted.sum() / len(log_prob), **parts}, 0.0, wrong)

    parts["cross_entropy"] = -log_prob.sum() / len(log_prob)
    time = torch.arange(episode.turn_logits.shape[1])
    ran = (time < (examples.asked * every)[:, None]).to(counted.dtype)
    rewards = hits if settings.reward == "hamming" else log_prob.detach()
    returns = discounted_returns(rewards, settings.discount, every)
    if settings.rightward:
        moved = losses.moved_right(episode.leaves, every) * (hits == counted).all(-1, keepdim=True) * ran
        returns = returns + settings.rightward * discounted_returns(moved, settings.discount, 1)
    outcomes = Outcomes(returns, ran, run.data.runs, partial(_predicted, head, episode.queries))
    estimate = estimated(estimator or estimators.get(settings.baseline), outcomes)
    if estimate.loss is not None:
        parts["baseline"] = estimate.loss
    advantages = normalised(estimate.advantages, ran) if settings.normalise else estimate.advantages
    parts["reinforce"] = reinforce * losses.reinforce_loss(episode.log_probs, advantages, ran)
    entropies = episode.entropies
    if exploration > 0:
        terms = exploration_of(entropies, entropy or settings.entropy)
        parts["exploration"] = exploration * losses.exploration_loss(terms, ran)
    mean_entropy = (entropies.detach() * ran[..., None]).sum() / (ran.sum() * depth).clamp(min=1)
    return Terms(parts, float(mean_entropy), wrong)


def _predicted(
    head: nn.Module | None, queries: Float[Tensor, "batch time query"]
) -> Float[Tensor, "batch time"]:
    if head is None:
        raise InputError("this model has no baseline of its own to predict returns with")
    return head(queries).squeeze(-1)
