"""DHAM: the same networks with soft attention (the paper's appendix), for every task."""

from __future__ import annotations

from dataclasses import replace

from ham.config import Run, Training

_COMPARING = ("merge", "sort", "priority_queue")
"""Tasks whose turns compare keys, which takes longer to get right: in the searches, 14 to 23% wrong on 16 leaves where
the others were below 9%."""


def soft(hard: Run) -> Run:
    """The run of a task's hard model with soft attention instead, found by a search on each task.

    A batch costs Θ(n) times as much, but gradients reach everything, so fewer batches are given. A gradient that goes
    back from tree to tree grows, most of all where leaves are blended, and a few examples of a batch are then all that
    is heard: `tree_clip` bounds it, and `in_order` leaves out what follows a mistake. Nothing is sampled, but turns
    get sure early, right or wrong, and then have no gradient: much exploration at the start keeps them open. Sums are
    as varied as the hard model's.
    """
    online = hard.model.kind == "raw-ham"
    return Run(
        hard.task,
        replace(hard.model, soft=True),
        Training(
            epochs=36,
            batches=1000 if hard.task in _COMPARING else 500,
            validation=2500,
            learning_rate=4.5e-3,
            learning_rate_decay=0.96,
            clip=1.2,
            threshold=0.25,
            mix=0.35,
            pull=6e-4,
            tree_clip=10.0,
            in_order=0.8,
            exploration=5e-3,
            exploration_decay=0.82,
            restart=hard.training.restart,
            varied=hard.training.varied,
            cramped=0.1 if online else 0.0,
            finish=10,
            finish_learning_rate=1e-3,
        ),
    )
