"""The gradient of the objective on one batch: by autograd, or by the native engine in one call."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ham.config import Training
from ham.learn.estimators import LEAST_SQUARE
from ham.learn.flat import FlatParameters
from ham.learn.objective import Examples, objective
from ham.nn import HAM, Model, SoftHAM, Start
from ham.ops import Episode, native_for
from ham.ops.episode import LEAST_ENTROPY

if TYPE_CHECKING:
    from ham.ops import native_recurrent, native_training


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

    def __init__(self, model: Model, flat: FlatParameters, training: Training):
        self.model, self.flat, self.training = model, flat, training
        self._engine: native_training.Gradient | native_recurrent.Gradient | None = None
        # The loss is a batch's mean; these settings speak of one example's.
        self.pull = training.pull / training.batch
        memory = getattr(model, "memory", None)
        if isinstance(memory, HAM):
            memory.join.pull = self.pull
        self.soft = memory if isinstance(memory, SoftHAM) else None
        if self.soft:
            self.soft.tree_clip, self.soft.entropy = training.tree_clip / training.batch, training.entropy

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
    ) -> Cost:
        """Run the batch, with as many timesteps as it has symbols times η."""
        model = self.model
        if native_for(examples.inputs):
            from ham.ops import native_recurrent

            engine = self._native()
            given = (examples.inputs, examples.lengths, examples.asked, examples.targets, examples.counted)
            if isinstance(engine, native_recurrent.Gradient):
                return Cost(*engine.of(*given))
            if engine is not None and uniforms.shape[-1]:
                cost = engine.of(
                    *given,
                    uniforms,
                    leaves=leaves,
                    reinforce=reinforce,
                    exploration=exploration,
                    places=places,
                    start=start,
                )
                return Cost(*cost)

        if self.soft:
            self.soft.exploration = exploration / self.training.batch
        # A model that has no use for these need not know of them.
        placed = {} if places is None and start is None else {"places": places, "start": start}
        episode = model(
            examples.inputs,
            examples.lengths,
            examples.asked,
            leaves=leaves,
            uniforms=uniforms,
            targets=examples.targets,
            **placed,
        )
        if model.baseline is None and native_for(examples.inputs):
            return self._of_cross_entropy(episode, examples)
        terms = objective(
            episode,
            examples,
            model.baseline,
            self.training,
            every=model.every,
            reinforce=reinforce,
            exploration=exploration,
        )
        norm = self._backward(terms.loss)
        return Cost(float(terms.loss.detach()), terms.cross_entropy, terms.entropy, terms.wrong, norm)

    def _of_cross_entropy(self, episode: Episode, examples: Examples) -> Cost:
        """For models that decide nothing: by autograd, but for the objective, which is the engine's."""
        from ham.ops import native_training

        outputs = episode.outputs
        d_outputs, cross_entropy, wrong = native_training.cross_entropy(
            outputs.detach(), examples.targets, examples.counted, examples.asked
        )
        return Cost(cross_entropy, cross_entropy, 0.0, wrong, self._backward(outputs, d_outputs))

    def _backward(self, result: Tensor, gradient: Tensor | None = None) -> float:
        """Fills the vector; gives its norm."""
        self.flat.gradient.zero_()
        result.backward(gradient)
        return float(torch.linalg.vector_norm(self.flat.gradient))

    def _native(self) -> native_training.Gradient | native_recurrent.Gradient | None:
        """The engine's own gradient, for the models it knows."""
        if self._engine is None and (sizes := self.model.engine_sizes()) is not None:
            from ham.ops import native_recurrent, native_training

            vectors = (self.flat.weights, self.flat.gradient)
            if isinstance(sizes, native_recurrent.Sizes):
                self._engine = native_recurrent.Gradient(*vectors, sizes)
            else:
                options = options_of(self.training)
                self._engine = native_training.Gradient(
                    *vectors, sizes, self.model.every, options, **self.model.engine_options()
                )
        return self._engine


def options_of(training: Training) -> native_training.Options:
    """What the engine has to know of the objective."""
    from ham.ops import native_training

    return native_training.Options(
        runs=training.runs,
        reward=training.reward,
        baseline=training.baseline,
        normalise=training.normalise,
        entropy=training.entropy,
        discount=training.discount,
        least_entropy=LEAST_ENTROPY,
        least_square=LEAST_SQUARE,
    )
