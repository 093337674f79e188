"""The paper to the letter: its models trained by sections 2.3 and 3.1 alone, without anything that was added since.

What those leave to a random search was found by one of eight trials for each task (`searches`), on up to 16 leaves and
over 20 epochs of 300 batches, for Sort 30 of 500: `ham tune TASK --paper`.
"""

from __future__ import annotations

from typing import Any

from ham.config import Architecture, Run, changed, paper


def _found(
    learning_rate: tuple[float, float],
    exploration: tuple[float, float],
    *,
    threshold: float,
    discount: float,
    hidden: int,
    depth: int,
    every: int = 1,
) -> dict[str, Any]:
    """Settings by their names; of what decays, the first value and the factor after each epoch."""
    rate, rate_decay = learning_rate
    alpha, alpha_decay = exploration
    return {
        "main.learning_rate": rate,
        "main.learning_rate_decay": rate_decay,
        "main.exploration": alpha,
        "main.exploration_decay": alpha_decay,
        "data.threshold": threshold,
        "objective.discount": discount,
        "model.hidden": hidden,
        "model.depth": depth,
        "model.every": every,
    }


_FOUND = {
    "reverse": _found(
        (0.0054, 0.982), (0.0019, 0.901), threshold=0.28, discount=0.74, hidden=20, depth=1, every=2
    ),
    "search": _found((0.0054, 0.982), (0.0019, 0.901), threshold=0.28, discount=0.74, hidden=20, depth=1),
    "merge": _found((0.0066, 0.976), (0.00078, 0.944), threshold=0.24, discount=0.86, hidden=40, depth=2),
    "sort": _found(
        (0.0017, 0.953), (0.00081, 0.961), threshold=0.19, discount=0.91, hidden=60, depth=2, every=2
    ),
    "add": _found(
        (0.0017, 0.953), (0.00081, 0.961), threshold=0.19, discount=0.91, hidden=60, depth=2, every=2
    ),
    "stack": _found((0.0076, 0.979), (0.00042, 0.907), threshold=0.12, discount=0.9, hidden=40, depth=2),
    "queue": _found((0.0066, 0.976), (0.00078, 0.944), threshold=0.24, discount=0.86, hidden=40, depth=2),
    "priority_queue": _found(
        (0.0025, 0.96), (0.0016, 0.966), threshold=0.16, discount=0.81, hidden=60, depth=2
    ),
}


def to_the_letter(ours: Run) -> Run:
    """A task's model as the paper trains it; `ours` is its recipe here, for the kind of its model.

    One run of each input with a learned baseline, no averaged weights, no end phase, batches of one size, the paper's
    questions only.
    """
    return changed(paper(Run(ours.task, Architecture(kind=ours.model.kind))), _FOUND[ours.task])
