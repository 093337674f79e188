"""What changes from epoch to epoch: the phases of a run, and the pace of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ham import config
from ham.config import Run, Schedule
from ham.ops.episode import Entropy

Phase = Literal["opening", "main", "finish", "done"]


@dataclass(frozen=True)
class Pace:
    """What an epoch is trained with."""

    learning_rate: float
    exploration: float
    reinforce: float
    entropy: Entropy


def settings_of(run: Run, phase: Phase) -> config.Phase:
    """What a run says of a phase."""
    return {"opening": run.opening, "finish": run.end}.get(phase, run.main)


def first_phase(schedule: Schedule) -> Phase:
    return "opening" if schedule.opening else "main"


def pace(run: Run, phase: Phase, epoch: int, began: int) -> Pace:
    """The pace of an epoch, counted from 0, in a phase that began, or began again, with epoch `began`."""
    settings = settings_of(run, phase)
    return Pace(
        settings.learning_rate * settings.learning_rate_decay ** (epoch - began),
        settings.exploration * settings.exploration_decay ** (epoch - began),
        settings.reinforce,
        run.objective.entropy if settings.exploration_term == "usual" else settings.exploration_term,
    )


def phase_after(schedule: Schedule, phase: Phase, began: int, epochs: int, settled: bool) -> Phase:
    """The phase that follows after so many epochs, of which there are never more than were asked for.

    The opening ends when its inputs are mastered, and the main phase early when its error falls no more: `settled`
    says so. The end phase runs its whole course: its errors are few and noisy, while decisions go on getting surer.
    """
    if epochs >= schedule.epochs:
        return "done"
    if phase == "finish":
        return "done" if epochs - began >= schedule.end_epochs else "finish"
    had_its_epochs = 0 < schedule.main <= epochs - began
    if epochs >= schedule.main_epochs or (phase == "main" and (settled or had_its_epochs)):
        return "finish" if schedule.end_epochs else "done"
    return "main" if settled else phase
