"""DHAM: the same networks with soft attention (the paper's appendix), for every task."""

from __future__ import annotations

from dataclasses import replace

from ham.config import Run, Training


def soft(hard: Run) -> Run:
    """The run of a task's hard model with soft attention instead.

    A batch costs Θ(n) times as much, but gradients reach everything, so fewer batches are given. Nothing is sampled:
    no REINFORCE and no exploration. A gradient that goes back from tree to tree grows, most of all where leaves are
    blended, and a few examples of a batch are then all that is heard: `tree_clip` bounds it, and `in_order` leaves out
    what follows a mistake. Sums are as varied as the hard model's, and all data structures are cramped: on the paper's
    questions alone, the model learns what to do for each length.
    """
    online = hard.model.kind == "raw-ham"
    return Run(
        hard.task,
        replace(hard.model, soft=True),
        Training(
            epochs=40,
            batches=500,
            validation=2500,
            learning_rate=4.6e-3,
            learning_rate_decay=0.955,
            clip=0.5,
            threshold=0.25,
            pull=3e-4,
            tree_clip=20.0,
            in_order=1.0,
            varied=hard.training.varied,
            cramped=0.5 if online else 0.0,
            finish=12,
            finish_learning_rate=7e-4,
        ),
    )
