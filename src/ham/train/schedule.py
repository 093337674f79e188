"""What changes from epoch to epoch: the phases of a run, and the pace of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ham.config import Run, Schedule
from ham.ops.episode import Entropy

Phase = Literal["main", "finish", "done"]


@dataclass(frozen=True)
class Pace:
    """What an epoch is trained with."""

    learning_rate: float
    exploration: float
    reinforce: float
    entropy: Entropy


def pace(run: Run, phase: Phase, epoch: int, began: int) -> Pace:
    """The pace of an epoch, counted from 0, in a phase that began, or began again, with epoch `began`."""
    settings = run.end if phase == "finish" else run.main
    return Pace(
        settings.learning_rate * settings.learning_rate_decay ** (epoch - began),
        settings.exploration * settings.exploration_decay ** (epoch - began),
        settings.reinforce,
        run.objective.entropy if settings.exploration_term == "usual" else settings.exploration_term,
    )


def phase_after(schedule: Schedule, phase: Phase, began: int, epochs: int, settled: bool) -> Phase:
    """The phase that follows after so many epochs, of which there are never more than were asked for.

    The main phase ends early when it has settled. The end phase runs its whole course: its errors are
    few and noisy, while decisions go on getting surer.
    """
    if epochs >= schedule.epochs:
        return "done"
    if phase == "finish":
        return "done" if epochs - began >= schedule.end_epochs else "finish"
    had_its_epochs = bool(schedule.main) and epochs - began >= schedule.main
    if settled or had_its_epochs or epochs >= schedule.main_epochs:
        return "finish" if schedule.end_epochs else "done"
    return "main"
