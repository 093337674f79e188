"""The paper to the letter: its models trained by sections 2.3 and 3.1 alone, without anything that was added since."""

from __future__ import annotations

from ham.config import Architecture, Run, paper


def to_the_letter(ours: Run) -> Run:
    """A task's model as the paper trains it; `ours` is its recipe here, for the one setting that belongs to the task.

    One run of each input with a learned baseline, no averaged weights, no end phase, batches of one size, the paper's
    questions only. What the paper leaves to a random search is as general as it was found: `ham tune` finds others.
    """
    return paper(Run(ours.task, Architecture(kind=ours.model.kind, every=ours.model.every)))
