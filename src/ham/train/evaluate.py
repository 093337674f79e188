"""The paper's protocol: greedy runs, whole sequences counted, sizes and lengths as asked for."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from ham.core.errors import InputError, NotFinite
from ham.core.seeds import Purpose, generator
from ham.core.tree import depth_of
from ham.models import Model
from ham.tasks import Task
from ham.tasks.hard_cases import draw_hard
from ham.train.losses import whole_sequences_wrong, wrong_parts
from ham.train.objective import Examples
from ham.train.practice import PLAIN, Conditions

if TYPE_CHECKING:
    from ham.runs import Trained

LARGEST_BATCH = 500
EXAMPLES_OF_A_TREE = 32
"""As many are validated in a tree of the same height with rows at the same places."""
LEAVES_AT_ONCE = 1 << 17
"""Memory bound: examples are run together only as long as their trees stay below this many leaves."""


@dataclass(frozen=True)
class Score:
    """Errors of a model on fresh examples."""

    examples: int
    wrong: int
    parts: int
    """What is counted besides: bits, or whole symbols where answers are not bits."""
    wrong_parts: int
    loss: float
    """Negative log-likelihood of an example, the tie-breaker between models without errors."""

    def __add__(self, other: Score) -> Score:
        """Both together."""
        examples = self.examples + other.examples
        return Score(
            examples,
            self.wrong + other.wrong,
            self.parts + other.parts,
            self.wrong_parts + other.wrong_parts,
            (self.loss * self.examples + other.loss * other.examples) / examples,
        )

    @property
    def error(self) -> float:
        """Percentage of whole sequences with anything wrong."""
        return 100 * self.wrong / self.examples

    @property
    def part_error(self) -> float:
        """Percentage of wrong bits or symbols."""
        return 100 * self.wrong_parts / max(self.parts, 1)

    @property
    def interval(self) -> tuple[float, float]:
        """95% confidence interval of `error` (Wilson's), in percent."""
        return wilson(self.wrong, self.examples)


def wilson(wrong: int, examples: int, z: float = 1.959964) -> tuple[float, float]:
    """Wilson's score interval in percent; unlike the normal one it is not empty at zero errors.

    >>> [round(bound, 3) for bound in wilson(0, 2500)]
    [0.0, 0.153]
    """
    share = wrong / examples
    scale = 1 + z * z / examples
    middle = (share + z * z / (2 * examples)) / scale
    half = z / scale * math.sqrt(share * (1 - share) / examples + z * z / (4 * examples * examples))
    # By rounding a bound may miss 0 or 1, and then the share itself, which plots of errors do not take.
    return 100 * min(max(middle - half, 0.0), share), 100 * max(min(middle + half, 1.0), share)


def lengths_for(leaves: int, trained_on: int) -> tuple[int, int]:
    """The paper's ranges: [1, n] up to the trained size, the upper half of a larger memory.

    >>> lengths_for(32, trained_on=32), lengths_for(128, trained_on=32)
    ((1, 32), (65, 128))
    """
    return (1, leaves) if leaves <= trained_on else (leaves // 2 + 1, leaves)


def evaluate_at(
    trained: Trained,
    leaves: int,
    *,
    examples: int,
    seed: int,
    lengths: tuple[int, int] | None = None,
    progress: Callable[[int], None] | None = None,
) -> Score:
    """A trained model in a memory of some size, on inputs of the paper's lengths for it or of others.

    A seed means the same examples whoever asks: `ham evaluate`, the tables and the models' cards.
    """
    depth_of(leaves)
    return evaluate(
        trained.model,
        trained.task,
        leaves=leaves,
        lengths=lengths or lengths_for(leaves, trained.run.data.leaves),
        examples=examples,
        rng=generator(Purpose.TEST, seed, leaves, trained.task.name),
        progress=progress,
    )


def evaluate(
    model: Model,
    task: Task,
    *,
    leaves: int,
    lengths: tuple[int, int],
    examples: int,
    rng: np.random.Generator,
    progress: Callable[[int], None] | None = None,
    conditions: Conditions = PLAIN,
) -> Score:
    """Run a model greedily on fresh examples and count what is wrong.

    Under `conditions` all are harder, as is practised: in taller trees, from other states, and half of the batches are
    hard cases, where there are such; likewise a third of them, in memories that are partly full.
    """
    depth_of(leaves)
    low, high = lengths
    if not 1 <= low <= high:
        raise InputError(f"lengths must be 1 ≤ A ≤ B, got {low}:{high}")
    if high > leaves:
        raise InputError(f"lengths up to {high} do not fit into {leaves} leaves")
    if examples < 1:
        raise InputError(f"examples must be at least 1, got {examples}")
    largest = max(leaves, conditions.tallest) if conditions.tall else leaves
    at_once = max(1, min(LARGEST_BATCH, LEAVES_AT_ONCE // largest, examples))
    if conditions.any:
        at_once = min(at_once, EXAMPLES_OF_A_TREE)
    wrong = wrong_of_parts = parts = done = 0
    loss = 0.0
    with torch.no_grad():
        while done < examples:
            batch = min(at_once, examples - done)
            if conditions.stocked and done // at_once % 3 == 2:
                drawn, size, told = conditions.partly_full(rng, task, batch, leaves, model)
            else:
                if conditions.hard and done // at_once % 2:
                    drawn, size = draw_hard(rng, task, batch, leaves)
                else:
                    drawn = task.sample(rng, batch, leaves, task.draw_lengths(rng, batch, low, high))
                    size = leaves
                size, told = conditions.always().surroundings(rng, drawn, size, task)
            given = Examples.of(drawn, task.outputs)
            outputs = model(given.inputs, given.lengths, given.asked, leaves=size, keep=False, **told).outputs
            require_finite(outputs, size)
            missed = wrong_parts(given.hits(outputs), given.counted)
            wrong += int(whole_sequences_wrong(missed).sum())
            wrong_of_parts += int(missed.sum())
            parts += int(given.counted.sum()) * missed.shape[-1]
            loss -= float(given.log_prob(outputs).sum())
            done += batch
            if progress is not None:
                progress(batch)
    return Score(examples, wrong, parts, wrong_of_parts, loss / examples)


def require_finite(values: Float[Tensor, "..."], leaves: int, what: str = "outputs") -> None:
    """Refuse values that are no numbers; as bits of outputs they would all be zeros, and might pass for an answer."""
    if not torch.isfinite(values).all():
        raise NotFinite(
            f"the model's {what} are not finite with {leaves} leaves: its weights are too large for float32"
        )
