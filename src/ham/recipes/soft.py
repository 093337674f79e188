"""DHAM: the same networks with soft attention (the paper's appendix), for every task."""

from __future__ import annotations

from ham import tasks
from ham.config import Architecture, Data, Objective, Optimiser, Options, Phase, Run, Schedule, Soft
from ham.models.kinds import kind_for

_COMPARING = ("merge", "sort", "priority_queue")
"""Tasks whose turns compare keys, which takes longer to get right: in the searches, 14 to 23% wrong on 16 leaves where
the others were below 9%."""
_PRACTICE = {"add": Options(varied=0.6)}


def soft(hard: Run) -> Run:
    """The run of a task's hard model with soft attention instead, found by a search on each task.

    A batch costs Θ(n) times as much, but gradients reach everything, so fewer batches are given. A gradient that goes
    back from tree to tree grows, most of all where leaves are blended, and a few examples of a batch are then all that
    is heard: `tree_clip` bounds it, and `in_order` leaves out what follows a mistake. Nothing is sampled, but turns
    get sure early, right or wrong, and then have no gradient: much exploration at the start keeps them open. Values and
    cells are not bounded, and trees not taller than needed.
    """
    online = tasks.get(hard.task).online
    model = Architecture(
        kind=kind_for(online, "-dham").name,
        hidden=hard.model.hidden,
        every=hard.model.every,
        soft=Soft(tree_clip=10.0, in_order=0.8),
    )
    return Run(
        hard.task,
        model,
        practice=Options(cramped=0.1) if online else _PRACTICE.get(hard.task, Options()),
        data=Data(
            batches=1000 if hard.task in _COMPARING else 500, validation=2500, threshold=0.25, mix=0.35
        ),
        objective=Objective(pull=6e-4),
        optimiser=Optimiser(clip=1.2),
        schedule=Schedule(epochs=36, finish=10, restart=hard.schedule.restart),
        main=Phase(learning_rate=4.5e-3, exploration=5e-3, exploration_decay=0.82),
    )
