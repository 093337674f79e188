"""The gradient of the objective on one batch: by autograd, or by the native engine in one call."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ham.config import Run
from ham.core.own import is_own
from ham.models import Beforehand, Model, SoftHAM, Start
from ham.ops import Episode, offer
from ham.ops.episode import LEAST_ENTROPY, NO_PENALTIES, PARTS, Entropy, Penalties
from ham.tasks import Codec
from ham.train import estimators
from ham.train.estimators import LEAST_SQUARE, Estimator
from ham.train.flat import FlatParameters
from ham.train.objective import Examples, objective


@dataclass(frozen=True)
class Cost:
    """What a batch cost; the gradient itself is in the model's vector."""

    parts: dict[str, float]
    """Of the loss, by their names in `PARTS`."""
    entropy: float
    """Mean entropy of a decision, in nats."""
    wrong: float
    """Share of sampled runs with a wrong symbol."""
    norm: float
    """Of the gradient."""

    @property
    def loss(self) -> float:
        """What is descended: the sum of all parts."""
        return sum(self.parts.values())

    @property
    def finite(self) -> bool:
        return math.isfinite(self.loss) and math.isfinite(self.norm)

    @classmethod
    def of(cls, terms: Mapping[str, float], norm: float) -> Cost:
        """From what an engine says of a batch."""
        return cls({part: terms[part] for part in PARTS}, terms["entropy"], terms["wrong"], norm)


class Gradient:
    """Computes a model's gradient into its vector, batch after batch.

    `estimator` is by default the run's.
    """

    def __init__(self, model: Model, flat: FlatParameters, run: Run, *, estimator: Estimator | None = None):
        self.model, self.flat, self.run = model, flat, run
        self.own = estimator
        self.estimator = estimator or estimators.get(run.objective.baseline)
        self._engine: Any = None
        self._asked = False
        memory = getattr(model, "memory", None)
        self.soft = isinstance(memory, SoftHAM)
        # The loss is a batch's mean; these settings speak of one example's.
        self.pull = run.objective.pull / run.data.batch
        self.tree_clip = run.model.soft.tree_clip / run.data.batch if self.soft else 0.0

    def of(
        self,
        examples: Examples,
        uniforms: Float[Tensor, "batch time depth"],
        *,
        leaves: int,
        reinforce: float,
        exploration: float,
        entropy: Entropy | None = None,
        places: Int[Tensor, "rows"] | None = None,
        start: Start | None = None,
        beforehand: Beforehand | None = None,
    ) -> Cost:
        """Run the batch, with as many timesteps as it has symbols times η; `entropy` is by default the run's."""
        model, entropy = self.model, entropy or self.run.objective.entropy
        engine = self._in_one_call(examples.codec, decides=uniforms.shape[-1] > 0)
        if engine is not None and (uniforms.shape[-1] or model.baseline is None):
            given = (examples.inputs, examples.lengths, examples.asked, examples.targets, examples.counted)
            if model.baseline is None:
                return Cost.of(*engine.of(*given))
            cost = engine.of(
                *given,
                uniforms,
                leaves=leaves,
                reinforce=reinforce,
                exploration=exploration,
                entropy=entropy,
                places=places,
                start=start,
                stock=cast(Any, model).stock_after(beforehand) if beforehand else None,
            )
            return Cost.of(*cost)

        # A model that has no use for these need not know of them.
        given_beside = {"places": places, "start": start, "beforehand": beforehand}
        told: dict[str, Any] = {name: value for name, value in given_beside.items() if value is not None}
        if (penalties := self._penalties(exploration, entropy)) != NO_PENALTIES:
            told["penalties"] = penalties
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
            entropy=entropy,
            estimator=self.estimator,
        )
        norm = self._backward(terms.loss)
        parts = {name: float(part.detach()) for name, part in terms.parts.items()}
        return Cost({name: parts.get(name, 0.0) for name in PARTS}, terms.entropy, terms.wrong, norm)

    def _penalties(self, exploration: float, entropy: Entropy) -> Penalties:
        """What is asked of the memory; without soft attention exploration is the sampled decisions' own."""
        if not self.soft:
            return Penalties(self.pull) if self.pull else NO_PENALTIES
        weight = exploration / self.run.data.batch
        return Penalties(self.pull, weight, entropy, self.tree_clip)

    def _of_cross_entropy(self, episode: Episode, examples: Examples) -> Cost | None:
        """For models that decide nothing: by autograd, but for the objective, which an engine may have."""
        outputs = episode.outputs
        call = (outputs.detach(), examples.targets, examples.counted, examples.asked, examples.codec)
        if (found := offer("cross_entropy", *call)) is None:
            return None
        d_outputs, cross_entropy, wrong = found
        parts = {**dict.fromkeys(PARTS, 0.0), "cross_entropy": cross_entropy}
        return Cost(parts, 0.0, wrong, self._backward(outputs, d_outputs))

    def _backward(self, result: Tensor, gradient: Tensor | None = None) -> float:
        """Fills the vector; gives its norm."""
        self.flat.gradient.zero_()
        result.backward(gradient)
        return float(torch.linalg.vector_norm(self.flat.gradient))

    def _in_one_call(self, codec: Codec, *, decides: bool) -> Any:
        """An engine's own gradient of a whole batch, for the models that it knows."""
        if not self._asked:
            call = (self.model, self.flat.weights, self.flat.gradient, self.model.every)
            options = options_of(self.run)
            if self.own is not None and not is_own(options["baseline"]):
                options["baseline"] = f"{getattr(self.own, '__name__', self.own)} (given in Python)"
            self._engine = offer("gradient", *call, options, self.pull, codec, expected=decides)
            self._asked = True
        return self._engine


def options_of(run: Run) -> dict[str, Any]:
    """What an engine has to know of the objective."""
    return {
        "runs": run.data.runs,
        "reward": run.objective.reward,
        "baseline": run.objective.baseline,
        "normalise": run.objective.normalise,
        "discount": run.objective.discount,
        "rightward": run.objective.rightward,
        "least_entropy": LEAST_ENTROPY,
        "least_square": LEAST_SQUARE,
    }
