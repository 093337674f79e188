"""The gradient of the objective on one batch: by autograd, or by the native engine in one call."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ham.config import Run
from ham.models import HAM, Beforehand, Model, SoftHAM, Start
from ham.models.transformations import Join
from ham.ops import Episode, offer
from ham.ops.episode import LEAST_ENTROPY
from ham.train.estimators import LEAST_SQUARE
from ham.train.flat import FlatParameters
from ham.train.objective import Examples, objective


@dataclass(frozen=True)
class Cost:
    """What a batch cost; the gradient itself is in the model's vector."""

    loss: float
    cross_entropy: float
    entropy: float
    """Mean entropy of a decision, in nats."""
    wrong: float
    """Share of sampled runs with a wrong bit."""
    norm: float
    """Of the gradient."""

    @property
    def finite(self) -> bool:
        return math.isfinite(self.loss) and math.isfinite(self.norm)


class Gradient:
    """Computes a model's gradient into its vector, batch after batch."""

    def __init__(self, model: Model, flat: FlatParameters, run: Run):
        self.model, self.flat, self.run = model, flat, run
        self._engine: Any = None
        self._asked = False
        # The loss is a batch's mean; these settings speak of one example's.
        self.pull = run.objective.pull / run.data.batch
        memory = getattr(model, "memory", None)
        if isinstance(memory, HAM) and isinstance(memory.join, Join):
            memory.join.pull = self.pull
        self.soft = memory if isinstance(memory, SoftHAM) else None
        if self.soft:
            self.soft.tree_clip = run.model.soft.tree_clip / run.data.batch
            self.soft.entropy = run.objective.entropy

    def of(
        self,
        examples: Examples,
        uniforms: Float[Tensor, "batch time depth"],
        *,
        leaves: int,
        reinforce: float,
        exploration: float,
        places: Int[Tensor, "rows"] | None = None,
        start: Start | None = None,
        beforehand: Beforehand | None = None,
    ) -> Cost:
        """Run the batch, with as many timesteps as it has symbols times η."""
        model = self.model
        engine = self._in_one_call()
        if engine is not None and (uniforms.shape[-1] or model.baseline is None):
            given = (examples.inputs, examples.lengths, examples.asked, examples.targets, examples.counted)
            if model.baseline is None:
                return Cost(*engine.of(*given))
            cost = engine.of(
                *given,
                uniforms,
                leaves=leaves,
                reinforce=reinforce,
                exploration=exploration,
                places=places,
                start=start,
                stock=model.stock_after(beforehand) if beforehand else None,
            )
            return Cost(*cost)

        if self.soft:
            self.soft.exploration = exploration / self.run.data.batch
        # A model that has no use for these need not know of them.
        given_beside = {"places": places, "start": start, "beforehand": beforehand}
        told = {name: value for name, value in given_beside.items() if value is not None}
        episode = model(
            examples.inputs,
            examples.lengths,
            examples.asked,
            leaves=leaves,
            uniforms=uniforms,
            targets=examples.targets,
            **told,
        )
        if model.baseline is None and (cost := self._of_cross_entropy(episode, examples)):
            return cost
        terms = objective(
            episode,
            examples,
            model.baseline,
            self.run,
            every=model.every,
            reinforce=reinforce,
            exploration=exploration,
        )
        norm = self._backward(terms.loss)
        return Cost(float(terms.loss.detach()), terms.cross_entropy, terms.entropy, terms.wrong, norm)

    def _of_cross_entropy(self, episode: Episode, examples: Examples) -> Cost | None:
        """For models that decide nothing: by autograd, but for the objective, which an engine may have."""
        outputs = episode.outputs
        call = (outputs.detach(), examples.targets, examples.counted, examples.asked)
        if (found := offer("cross_entropy", *call)) is None:
            return None
        d_outputs, cross_entropy, wrong = found
        return Cost(cross_entropy, cross_entropy, 0.0, wrong, self._backward(outputs, d_outputs))

    def _backward(self, result: Tensor, gradient: Tensor | None = None) -> float:
        """Fills the vector; gives its norm."""
        self.flat.gradient.zero_()
        result.backward(gradient)
        return float(torch.linalg.vector_norm(self.flat.gradient))

    def _in_one_call(self) -> Any:
        """An engine's own gradient of a whole batch, for the models that it knows."""
        if not self._asked:
            call = (self.model, self.flat.weights, self.flat.gradient, self.model.every)
            self._engine = offer("gradient", *call, options_of(self.run), self.pull)
            self._asked = True
        return self._engine


def options_of(run: Run) -> dict[str, Any]:
    """What an engine has to know of the objective."""
    return {
        "runs": run.data.runs,
        "reward": run.objective.reward,
        "baseline": run.objective.baseline,
        "normalise": run.objective.normalise,
        "entropy": run.objective.entropy,
        "discount": run.objective.discount,
        "least_entropy": LEAST_ENTROPY,
        "least_square": LEAST_SQUARE,
    }
