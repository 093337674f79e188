"""Where training stands: all that it needs to go on to the same bits."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, replace
from typing import Any, get_args

import torch
from torch import Tensor

from ham import tasks
from ham.config import Run, from_dict
from ham.core.errors import InputError
from ham.core.seeds import Purpose, generator
from ham.core.text import shell_word
from ham.core.tree import capacity_for
from ham.models import Model
from ham.ops.episode import PARTS
from ham.runs import CHECKPOINT, STATE, RunFolder, start_from
from ham.tasks import Task
from ham.train.adam import Adam
from ham.train.curriculum import Curriculum, stages
from ham.train.flat import FlatParameters
from ham.train.practice import Conditions
from ham.train.schedule import Phase, first_phase


@dataclass
class Progress:
    """The numbers of a state."""

    stage: int = 0
    """Of the curriculum."""
    epoch: int = 0
    batch: int = 0
    phase: Phase = "main"
    phase_began: int = 0
    adam_steps: int = 0
    averaged_steps: int = 0
    since_better: int = 0
    """Epochs since the validation error last improved, or a stage began."""
    best: list[float] = field(default_factory=lambda: [0.0, -math.inf, -math.inf])
    """Longest input, minus error, minus loss: compared in this order."""
    sums: list[float] = field(default_factory=lambda: [0.0] * 4)
    """Loss, wrong, entropy and gradient norm over the epoch so far."""
    parts: list[float] = field(default_factory=lambda: [0.0] * len(PARTS))
    """Of the loss, in the order of `PARTS`, over the epoch so far."""
    seconds: float = 0.0

    def fits(self, run: Run, curriculum: Curriculum) -> bool:
        """Whether training of this run can stand here."""
        counts = (self.epoch, self.phase_began, self.adam_steps, self.averaged_steps, self.since_better)
        return (
            0 <= self.stage < len(curriculum.stages)
            and all(0 <= count < 1 << 53 for count in counts)
            and self.phase_began <= self.epoch <= run.schedule.epochs
            and (self.phase != "done" or self.epoch > 0)
            and 0 <= self.batch <= run.data.batches
            and (len(self.best), len(self.sums), len(self.parts)) == (3, 4, len(PARTS))
            and not any(map(math.isnan, self.best))
            and all(map(math.isfinite, (*self.sums, *self.parts, self.seconds)))
        )


class State:
    """A run's model with its optimiser, averages, curriculum, progress and log."""

    def __init__(self, run: Run):
        self.run = run
        self.task = tasks.get(run.task)
        torch.manual_seed(run.seed)
        self.model = run.model.build(self.task)
        self.learner = self.model
        """The model that is trained: itself, or another with the same parameters."""
        if run.model.learner != run.model:
            self.learner = run.model.learner.build(self.task)
            self.learner.load_state_dict(self.model.state_dict(keep_vars=True), assign=True)
        self.flat = FlatParameters(self.model)
        self.adam = Adam(self.flat.weights)
        self.average = self.flat.weights.clone()
        """Moving average of the weights, which is validated and kept."""
        self.best = self.average.clone()
        self.curriculum = curriculum_of(run, self.task)
        self.progress = Progress(phase=first_phase(run.schedule))
        self.records: list[dict[str, Any]] = []
        """What `metrics.jsonl` holds."""
        self.whole = True
        """False while the weights are ahead of the progress: stopped there, the state on disk is the truth."""

    @classmethod
    def of(cls, run: Run, folder: RunFolder) -> State:
        """As it was last saved in a folder, or at the beginning, which is saved."""
        state = cls(run)
        if (saved := folder.read_state()) is not None:
            state._go_on(saved, folder)
            return state
        if (folder.path / CHECKPOINT).exists() or folder.metrics():
            raise InputError(
                f"{folder.path} holds a trained model but no {STATE}, which a run goes on from; "
                f"start another one from its weights: ham train TASK --init {shell_word(folder.path)}"
            )
        if run.init:
            start_from(state.model, run.init)
            state.average, state.best = state.flat.weights.clone(), state.flat.weights.clone()
        state.save(folder)
        return state

    def save(self, folder: RunFolder) -> None:
        self.progress.adam_steps = self.adam.steps
        tensors = {"weights": self.flat.weights, "average": self.average, "best": self.best}
        tensors |= {"mean": self.adam.mean, "square": self.adam.square}
        folder.write_state(self.run, tensors, asdict(self.progress))

    @property
    def conditions(self) -> Conditions:
        """Under which the epoch is practised and validated."""
        return Conditions.of(self.run, self.progress.phase, self.curriculum.longest)

    @property
    def validated(self) -> Model:
        """The model that validation asks: the learner, as long as turns are unsure."""
        return self.model if self.progress.phase == "finish" else self.learner

    @property
    def saveable(self) -> bool:
        return self.whole and bool(torch.isfinite(self.flat.weights).all())

    def begin_phase(self, phase: Phase) -> None:
        """Go on from the averaged weights, with an optimiser that remembers nothing."""
        self.progress.phase, self.progress.phase_began = phase, self.progress.epoch
        self.progress.since_better = 0
        self.flat.load(self.average)
        self.adam.restart()

    def begin_anew(self) -> None:
        """Go on from other random weights, those of this epoch, as if nothing had been learned."""
        torch.manual_seed(
            int(generator(Purpose.WEIGHTS, self.run.seed, self.progress.epoch).integers(1 << 63))
        )
        self.average = FlatParameters(self.run.model.build(self.task)).weights.clone()
        self.curriculum = curriculum_of(self.run, self.task)
        self.progress.stage = self.progress.averaged_steps = 0
        self.progress.best = Progress().best
        self.begin_phase(first_phase(self.run.schedule))

    def _go_on(self, saved: tuple[dict[str, Tensor], dict[str, Any]], folder: RunFolder) -> None:
        tensors, self.progress = self._fitting(saved, folder)
        self.flat.load(tensors["weights"])
        self.average, self.best = tensors["average"], tensors["best"]
        self.adam.mean, self.adam.square = tensors["mean"], tensors["square"]
        self.adam.steps = self.progress.adam_steps
        self.records = folder.metrics()[: self.progress.epoch]
        if len(self.records) < self.progress.epoch:
            raise InputError(
                f"{folder.path} is damaged: {self.progress.epoch} epochs were trained, "
                f"{len(self.records)} are recorded"
            )
        self.curriculum = replace(self.curriculum, stage=self.progress.stage)
        if self.progress.phase != "done":
            folder.warn_if_elsewhere()

    def _fitting(
        self, saved: tuple[dict[str, Tensor], dict[str, Any]], folder: RunFolder
    ) -> tuple[dict[str, Tensor], Progress]:
        """A saved state, if it is one of this run's model and can be gone on from."""
        tensors, values = saved
        refusal = f"the saved state in {folder.path} is not of the run in its config"
        shapes = {name: (tensor.dtype, tuple(tensor.shape)) for name, tensor in tensors.items()}
        own = self.flat.weights.dtype, tuple(self.flat.weights.shape)
        if shapes != dict.fromkeys(("weights", "average", "best", "mean", "square"), own):
            raise InputError(f"{refusal}: it has tensors {shapes}")
        for name, tensor in tensors.items():
            if not torch.isfinite(tensor).all() or (name == "square" and bool((tensor < 0).any())):
                raise InputError(f"{refusal}: {name} holds values that training cannot make")
        progress = from_dict(Progress, values, refusal)
        if not progress.fits(self.run, self.curriculum):
            raise InputError(f"{refusal}: it stands at {values}")
        return tensors, progress


def prolonged(run: Run, folder: RunFolder, epochs: int) -> Run:
    """A run of a folder with more epochs, its end undone: it goes on in the phase that it is in, or ended with."""
    with folder.locked():
        state = State.of(run, folder)
        progress, done = state.progress, state.progress.phase == "done"
        phase = state.records[-1]["phase"] if done else progress.phase
        if phase not in get_args(Phase)[:-1]:
            raise InputError(f"{folder.path} is damaged: its last epoch is of phase {phase!r}")
        least = progress.epoch + 1 if done or phase == "finish" else run.schedule.epochs
        if epochs < least:
            raise InputError(
                f"the run in {folder.path} is of {run.schedule.epochs} epochs and stands at {progress.epoch}: "
                f"it can go on to {least} or more, not to {epochs}"
            )
        schedule = replace(run.schedule, epochs=epochs)
        if phase == "finish":
            schedule = replace(schedule, finish=epochs - progress.phase_began)
        if done:
            progress.phase, progress.since_better = phase, 0
        longer = replace(run, schedule=schedule)
        folder.write_config(longer)
        state.save(folder)
    return longer


def curriculum_of(run: Run, task: Task) -> Curriculum:
    """From the smallest tree that the task and the run allow."""
    smallest = max(run.data.start, capacity_for(task.shortest))
    largest = run.data.train_up_to or run.data.leaves
    if smallest > largest:
        raise InputError(f"{task.name} needs at least {smallest} leaves, got {largest}")
    return Curriculum(stages(smallest, run.data.leaves, run.data.growth), run.data.threshold)
