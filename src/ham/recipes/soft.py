"""DHAM: the same networks with soft attention (the paper's appendix), for every task."""

from __future__ import annotations

from dataclasses import replace

from ham import tasks
from ham.config import Architecture, Data, Objective, Optimiser, Options, Phase, Run, Schedule, Soft
from ham.models.kinds import kind_for

_PRACTICE = {"add": Options(varied=0.6)}
_SURE = {"merge": 0.02, "stack": 0.02, "priority_queue": 0.3}
"""Tasks that are learned with sampled turns, and how much it counts in the end that those are sure. With soft attention
alone they erred on 9 to 35% of the inputs up to 32 leaves."""


def soft(hard: Run) -> Run:
    """The run of a task's hard model with soft attention instead."""
    return _made_sure(hard) if hard.task in _SURE else _from_the_start(hard)


def _made_sure(hard: Run) -> Run:
    """Learned as the hard model is, whose turns are made sure in the end: soft attention then does what hard does.

    Else turns stay undecided where any free leaf will do, and soft attention writes a little to each of them.
    """
    model = replace(hard.model, kind=_kind(hard), soft=Soft(sampled=True))
    sure = replace(hard.end, exploration=_SURE[hard.task], exploration_decay=1.0, exploration_term="positive")
    return replace(hard, model=model, end=sure)


def _from_the_start(hard: Run) -> Run:
    """Soft attention from the first batch to the last, found by a search on each task.

    A batch costs Θ(n) times as much, but gradients reach everything, so fewer batches are given. A gradient that goes
    back from tree to tree grows, most of all where leaves are blended, and a few examples of a batch are then all that
    is heard: `tree_clip` bounds it, and `in_order` leaves out what follows a mistake. Nothing is sampled, but turns
    get sure early, right or wrong, and then have no gradient: much exploration at the start keeps them open. Values and
    cells are not bounded, and trees not taller than needed. Sort's turns compare keys, and take twice the batches.
    """
    online = tasks.get(hard.task).online
    model = Architecture(
        kind=_kind(hard),
        hidden=hard.model.hidden,
        every=hard.model.every,
        soft=Soft(tree_clip=10.0, in_order=0.8),
    )
    return Run(
        hard.task,
        model,
        practice=Options(cramped=0.1) if online else _PRACTICE.get(hard.task, Options()),
        data=Data(batches=1000 if hard.task == "sort" else 500, validation=2500, threshold=0.25, mix=0.35),
        objective=Objective(pull=6e-4),
        optimiser=Optimiser(clip=1.2),
        schedule=Schedule(epochs=36, finish=10, restart=hard.task == "add"),
        main=Phase(learning_rate=4.5e-3, exploration=5e-3, exploration_decay=0.82),
    )


def _kind(hard: Run) -> str:
    return kind_for(tasks.get(hard.task).online, "-dham").name
