"""Training, from the first batch to the last.

Notable choices: every batch draws from a generator seeded by (seed, batch number), so a run can
stop and go on anywhere and come to the same bits; the weights that are validated and kept are a
moving average; training is a generator of progress, so that whoever shows it or stops it needs
no hooks.
"""

from __future__ import annotations

import math
import time
from collections.abc import Generator
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ham import tasks
from ham.config import Run, Training, from_dict
from ham.core.errors import InputError, NotFinite
from ham.core.tree import capacity_for
from ham.runs import RunFolder
from ham.train.adam import Adam
from ham.train.curriculum import Curriculum, stages
from ham.train.evaluate import Score, evaluate
from ham.train.flat import FlatParameters
from ham.train.gradient import Gradient
from ham.train.objective import Examples
from ham.train.schedule import Phase, pace, phase_after

TRAINING, VALIDATION, TEST = 0, 1, 2
"""First word of every seed, so that no example of one kind is ever drawn for another."""

SECONDS_BETWEEN_STATES = 30.0
BATCHES_BETWEEN_REPORTS = 20


@dataclass(frozen=True)
class Step:
    """Progress inside an epoch."""

    epoch: int
    batch: int
    longest: int
    """Rows of the longest inputs in this batch."""
    wrong: float
    """Share of sampled runs with a wrong bit, over the epoch so far."""


@dataclass(frozen=True)
class Epoch:
    """The record of one epoch; what `metrics.jsonl` holds."""

    epoch: int
    phase: str
    longest: int
    """Rows of the longest inputs that were trained and validated on."""
    error: float
    """Validation error in percent of whole sequences."""
    bit_error: float
    loss: float
    """Validation cross-entropy of an example."""
    train_loss: float
    train_error: float
    entropy: float
    gradient: float
    """Mean norm of the gradient before clipping."""
    learning_rate: float
    exploration: float
    best: bool
    seconds: float
    """Time spent training so far."""


@dataclass
class Progress:
    """Where training stands; all of it goes into the saved state."""

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
    seconds: float = 0.0

    def fits(self, settings: Training, curriculum: Curriculum) -> bool:
        """Whether training with these settings can stand here."""
        counts = (self.epoch, self.phase_began, self.adam_steps, self.averaged_steps, self.since_better)
        return (
            0 <= self.stage < len(curriculum.stages)
            and all(0 <= count < 1 << 53 for count in counts)
            and self.epoch <= settings.epochs
            and 0 <= self.batch <= settings.batches
            and (len(self.best), len(self.sums)) == (3, 4)
            and not any(map(math.isnan, self.best))
            and all(map(math.isfinite, (*self.sums, self.seconds)))
        )


class Diverged(NotFinite):
    """The loss stopped being a number."""


def train(run: Run, folder: RunFolder) -> Generator[Step | Epoch, None, None]:
    """Train in a folder that `begin` was called on, from wherever its state says.

    Yields a `Step` now and then and an `Epoch` after each epoch. The state is saved after every
    epoch, every half minute, and when the generator is closed or interrupted.
    """
    settings = run.training
    task = tasks.get(run.task)
    torch.manual_seed(run.seed)
    model = run.model.build(task)
    flat = FlatParameters(model)
    gradient = Gradient(model, flat, settings)
    adam = Adam(flat.weights)
    average = flat.weights.clone()
    best = average.clone()
    smallest = max(settings.start, capacity_for(task.shortest))
    largest = settings.train_up_to or settings.leaves
    if smallest > largest:
        raise InputError(f"{task.name} needs at least {smallest} leaves, got {largest}")
    curriculum = Curriculum(stages(smallest, settings.leaves, settings.growth), settings.threshold)
    progress = Progress()
    records: list[dict[str, Any]] = []

    if (saved := folder.read_state()) is not None:
        tensors, progress = _fitting(saved, flat, folder, settings, curriculum)
        flat.load(tensors["weights"])
        average, best = tensors["average"], tensors["best"]
        adam.mean, adam.square, adam.steps = tensors["mean"], tensors["square"], progress.adam_steps
        records = folder.metrics()[: progress.epoch]
        if len(records) < progress.epoch:
            raise InputError(
                f"{folder.path} is damaged: {progress.epoch} epochs were trained, {len(records)} are recorded"
            )
        curriculum = replace(curriculum, stage=progress.stage)
        if progress.phase != "done":
            folder.warn_if_elsewhere()

    def save() -> None:
        progress.adam_steps = adam.steps
        tensors = {"weights": flat.weights, "average": average, "best": best}
        folder.write_state({**tensors, "mean": adam.mean, "square": adam.square}, asdict(progress))

    # False while the weights are ahead of the progress: stopped there, the state on disk is the truth.
    whole = True
    saved_at = started = time.monotonic()
    seconds_before = progress.seconds
    try:
        while progress.phase != "done":
            now = pace(settings, progress.phase, progress.epoch, progress.phase_began)
            while progress.batch < settings.batches:
                number = progress.epoch * settings.batches + progress.batch
                rng = np.random.default_rng([TRAINING, run.seed, number])
                longest = curriculum.draw(rng, settings.mix, largest)
                slots = leaves = capacity_for(longest)
                if settings.cramped and rng.random() < settings.cramped:
                    leaves = max(leaves // 2, 1)
                inputs = settings.batch // settings.runs
                lengths = task.draw_lengths(rng, inputs, 1, longest)
                drawn = task.practice(rng, inputs, slots, lengths, varied=settings.varied, leaves=leaves)
                examples = Examples.of(drawn.repeat(settings.runs))
                timesteps = examples.counted.shape[1] * model.every
                shape = (settings.batch, timesteps, model.decisions(leaves))
                uniforms = torch.from_numpy(rng.random(shape, dtype=np.float32))

                cost = gradient.of(
                    examples,
                    uniforms,
                    leaves=leaves,
                    reinforce=now.reinforce,
                    exploration=now.exploration,
                )
                if not cost.finite:
                    raise Diverged(
                        f"the loss or its gradient is not finite at batch {number} "
                        f"(data seed {[TRAINING, run.seed, number]}, {leaves} leaves); "
                        f"the last good state is in {folder.path}"
                    )
                scale = min(1.0, settings.clip / cost.norm) if cost.norm else 1.0
                whole = False
                adam.step(flat.gradient, now.learning_rate, scale=scale)
                progress.averaged_steps += 1
                # Early on the average must not remember the random start for a thousand batches.
                decay = min(settings.averaging, progress.averaged_steps / (progress.averaged_steps + 10))
                average.lerp_(flat.weights, 1 - decay)
                for place, value in enumerate((cost.cross_entropy, cost.wrong, cost.entropy, cost.norm)):
                    progress.sums[place] += value
                progress.batch += 1
                whole = True
                progress.seconds = seconds_before + time.monotonic() - started
                if progress.batch % BATCHES_BETWEEN_REPORTS == 0:
                    yield Step(progress.epoch, progress.batch, longest, progress.sums[1] / progress.batch)
                if time.monotonic() - saved_at > SECONDS_BETWEEN_STATES:
                    save()
                    saved_at = time.monotonic()

            whole = False
            score = _validate(model, flat, average, task, run, progress, curriculum.longest)
            quality = [float(curriculum.longest), -score.error, -score.loss]
            is_best = quality > progress.best
            progress.since_better = 0 if quality[:2] > progress.best[:2] else progress.since_better + 1
            if is_best:
                progress.best = quality
                best = average.clone()
            means = [total / settings.batches for total in progress.sums]
            progress.seconds = seconds_before + time.monotonic() - started
            epoch = Epoch(
                epoch=progress.epoch + 1,
                phase=progress.phase,
                longest=curriculum.longest,
                error=score.error,
                bit_error=score.bit_error,
                loss=score.loss,
                train_loss=means[0],
                train_error=100 * means[1],
                entropy=means[2],
                gradient=means[3],
                learning_rate=now.learning_rate,
                exploration=now.exploration,
                best=is_best,
                seconds=round(progress.seconds, 1),
            )
            records.append(asdict(epoch))

            curriculum = curriculum.after(score.error / 100)
            grew = curriculum.stage > progress.stage
            progress.stage = curriculum.stage
            progress.epoch += 1
            progress.batch, progress.sums = 0, [0.0] * 4
            settled = curriculum.complete and progress.since_better >= settings.patience
            phase = phase_after(settings, progress.phase, progress.phase_began, progress.epoch, settled)
            if phase != progress.phase or (settings.restart and grew and phase == "main"):
                progress.phase, progress.phase_began, progress.since_better = phase, progress.epoch, 0
                flat.load(average)
                adam.restart()

            if is_best:
                with flat.borrowed(best):
                    folder.write_checkpoint(run, model.state_dict())
            folder.write_metrics(records)
            save()
            whole = True
            saved_at = time.monotonic()
            yield epoch
    except (KeyboardInterrupt, GeneratorExit, Diverged):
        if whole and bool(torch.isfinite(flat.weights).all()):
            save()
        raise


def _fitting(
    saved: tuple[dict[str, Tensor], dict[str, Any]],
    flat: FlatParameters,
    folder: RunFolder,
    settings: Training,
    curriculum: Curriculum,
) -> tuple[dict[str, Tensor], Progress]:
    """A saved state, if it is one of this run's model and can be gone on from."""
    tensors, values = saved
    refusal = f"the saved state in {folder.path} is not of the run in its config"
    shapes = {name: (tensor.dtype, tuple(tensor.shape)) for name, tensor in tensors.items()}
    own = flat.weights.dtype, tuple(flat.weights.shape)
    if shapes != dict.fromkeys(("weights", "average", "best", "mean", "square"), own):
        raise InputError(f"{refusal}: it has tensors {shapes}")
    for name, tensor in tensors.items():
        if not torch.isfinite(tensor).all() or (name == "square" and bool((tensor < 0).any())):
            raise InputError(f"{refusal}: {name} holds values that training cannot make")
    progress = from_dict(Progress, values, refusal)
    if not progress.fits(settings, curriculum):
        raise InputError(f"{refusal}: it stands at {values}")
    return tensors, progress


def _validate(
    model, flat: FlatParameters, average: Tensor, task, run: Run, progress: Progress, longest: int
) -> Score:
    """Error of the averaged weights on fresh examples of the current stage."""
    rng = np.random.default_rng([VALIDATION, run.seed, progress.epoch])
    with flat.borrowed(average):
        try:
            return evaluate(
                model,
                task,
                leaves=capacity_for(longest),
                lengths=(1, longest),
                examples=run.training.validation,
                rng=rng,
            )
        except NotFinite as error:
            raise Diverged(f"validation after epoch {progress.epoch + 1}: {error}") from None
