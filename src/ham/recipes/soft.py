"""DHAM: the same networks with soft attention (the paper's appendix), for every task."""

from __future__ import annotations

from dataclasses import replace

from ham.config import Run, Training


def soft(hard: Run) -> Run:
    """The run of a task's hard model with soft attention instead.

    A batch costs Θ(n) times as much, but gradients reach everything, so a fifth of the batches is
    given. Nothing is sampled: no REINFORCE, no exploration, and no end phase that ends it. Settings from between the
    better trials of two short searches, on Sort and on Search.
    """
    return Run(
        hard.task,
        replace(hard.model, soft=True),
        Training(
            epochs=20,
            validation=2500,
            learning_rate=4e-3,
            learning_rate_decay=0.91,
            threshold=0.37,
            mix=0.31,
        ),
    )
