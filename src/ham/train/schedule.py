"""What changes from epoch to epoch: the phases of a run, and the pace of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ham.config import Training

Phase = Literal["main", "finish", "done"]


@dataclass(frozen=True)
class Pace:
    """What an epoch is trained with."""

    learning_rate: float
    exploration: float
    reinforce: float


def pace(settings: Training, phase: Phase, epoch: int, began: int) -> Pace:
    """The pace of an epoch, counted from 0, in a phase that began, or began again, with epoch `began`.

    The end phase does not explore: decisions that are still undecided break long inputs.
    """
    if phase == "finish":
        rate = settings.finish_learning_rate * settings.finish_decay ** (epoch - began)
        return Pace(rate, 0.0, settings.finish_reinforce)
    return Pace(
        settings.learning_rate * settings.learning_rate_decay ** (epoch - began),
        settings.exploration * settings.exploration_decay ** (epoch - began),
        settings.reinforce,
    )


def phase_after(settings: Training, phase: Phase, began: int, epochs: int, settled: bool) -> Phase:
    """The phase that follows after so many epochs.

    The main phase ends early when it has settled. The end phase runs its whole course: its errors are
    few and noisy, while decisions go on getting surer.
    """
    if phase == "finish":
        return "done" if epochs - began >= settings.finish else "finish"
    if settled or epochs >= settings.epochs - settings.finish:
        return "finish" if settings.finish else "done"
    return "main"
