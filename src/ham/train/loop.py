"""Training, from the first batch to the last.

Notable choices: every batch draws from a generator seeded by (seed, batch number), so a run can
stop and go on anywhere and come to the same bits; the weights that are validated and kept are a
moving average; training is a generator of progress, so that whoever shows it or stops it needs
no hooks.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from dataclasses import asdict, dataclass

from ham.config import Run
from ham.core.errors import NotFinite
from ham.core.seeds import Purpose, generator, seed_words
from ham.core.tree import capacity_for
from ham.ops.episode import PARTS
from ham.runs import RunFolder
from ham.train.data import draw
from ham.train.estimators import Estimator
from ham.train.evaluate import Score, evaluate
from ham.train.gradient import Cost, Gradient
from ham.train.practice import PLAIN, Conditions
from ham.train.schedule import Pace, first_phase, pace, phase_after
from ham.train.state import Progress, State

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
    """Share of sampled runs with a wrong symbol, over the epoch so far."""


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
    """Percentage of wrong bits; of wrong symbols, where answers are not bits."""
    loss: float
    """Validation cross-entropy of an example (its negative log-likelihood, where answers are not bits)."""
    train_loss: float
    """What was descended, of a batch: the sum of its parts."""
    train_parts: dict[str, float]
    train_error: float
    entropy: float
    gradient: float
    """Mean norm of the gradient before clipping."""
    learning_rate: float
    exploration: float
    best: bool
    seconds: float
    """Time spent training so far."""


class Diverged(NotFinite):
    """The loss stopped being a number."""


class _Clock:
    """Time spent training, over all sittings, and since the state was last saved."""

    def __init__(self, before: float):
        self.began = self.saved = time.monotonic()
        self.before = before

    def seconds(self) -> float:
        return self.before + time.monotonic() - self.began


def train(
    run: Run, folder: RunFolder, *, estimator: Estimator | None = None
) -> Generator[Step | Epoch, None, None]:
    """Train in a folder that `begin` was called on, from wherever its state says.

    Yields a `Step` now and then and an `Epoch` after each epoch. The state is saved after every
    epoch, every half minute, and when the generator is closed or interrupted. `estimator` is a function to use
    instead of the one that `objective.baseline` names; no file holds it, so who resumes the run gives it again.
    """
    state = State.of(run, folder)
    gradient = Gradient(state.learner, state.flat, run, estimator=estimator)
    clock = _Clock(state.progress.seconds)
    try:
        while (phase := state.progress.phase) != "done":
            now = pace(run, phase, state.progress.epoch, state.progress.phase_began)
            yield from _batches(state, gradient, now, clock, folder)
            yield _end_of_epoch(state, now, clock, folder)
    except (KeyboardInterrupt, GeneratorExit, Diverged):
        if state.saveable:
            state.save(folder)
        raise


def _batches(state: State, gradient: Gradient, now: Pace, clock: _Clock, folder: RunFolder) -> Iterator[Step]:
    """Train on what is left of the epoch."""
    progress, batches = state.progress, state.run.data.batches
    while progress.batch < batches:
        number = progress.epoch * batches + progress.batch
        drawn = draw(state.run, state.task, state.learner, state.curriculum, number, state.conditions)
        cost = gradient.of(
            drawn.examples,
            drawn.uniforms,
            leaves=drawn.leaves,
            reinforce=now.reinforce,
            exploration=now.exploration,
            entropy=now.entropy,
            **drawn.told,
        )
        if not cost.finite:
            raise Diverged(
                f"the loss or its gradient is not finite at batch {number} "
                f"(data seed {seed_words(Purpose.TRAINING, state.run.seed, number)}, {drawn.leaves} leaves); "
                f"the last good state is in {folder.path}"
            )
        state.whole = False
        _step(state, cost, now.learning_rate)
        state.whole = True
        progress.seconds = clock.seconds()
        if progress.batch % BATCHES_BETWEEN_REPORTS == 0:
            yield Step(progress.epoch, progress.batch, drawn.longest, progress.sums[1] / progress.batch)
        if time.monotonic() - clock.saved > SECONDS_BETWEEN_STATES:
            state.save(folder)
            clock.saved = time.monotonic()


def _step(state: State, cost: Cost, learning_rate: float) -> None:
    """Follow the gradient, clipped, and count the batch."""
    optimiser, progress = state.run.optimiser, state.progress
    scale = min(1.0, optimiser.clip / cost.norm) if cost.norm else 1.0
    state.adam.step(state.flat.gradient, learning_rate, scale=scale)
    progress.averaged_steps += 1
    # Early on the average must not remember the random start for a thousand batches.
    decay = min(optimiser.averaging, progress.averaged_steps / (progress.averaged_steps + 10))
    state.average.lerp_(state.flat.weights, 1 - decay)
    for place, value in enumerate((cost.loss, cost.wrong, cost.entropy, cost.norm)):
        progress.sums[place] += value
    for place, part in enumerate(PARTS):
        progress.parts[place] += cost.parts[part]
    progress.batch += 1


def _end_of_epoch(state: State, now: Pace, clock: _Clock, folder: RunFolder) -> Epoch:
    """Validate, keep the weights if they are the best so far, and go on to the next epoch or phase."""
    state.whole = False
    plain, score = _validate(state)
    is_best = _judge(state, score)
    state.progress.seconds = clock.seconds()
    epoch = _record(state, score, now, is_best)
    state.records.append(asdict(epoch))
    _advance(state, _error_that_counts(state, plain, score))
    if is_best:
        with state.flat.borrowed(state.best):
            folder.write_checkpoint(state.run, state.model.state_dict())
    folder.write_metrics(state.records)
    state.save(folder)
    state.whole = True
    clock.saved = time.monotonic()
    return epoch


def _validate(state: State) -> tuple[Score, Score]:
    """Errors of the averaged weights on examples of the current stage, none of which is trained on.

    The first is on the paper's; the second, by which epochs are compared, has as many beside them as are practised.
    All epochs of an end phase that practises more than the paper has are compared on the same examples: their errors
    are few, and luck is no merit.
    """
    progress, longest, conditions = state.progress, state.curriculum.longest, state.conditions
    if state.validated is not state.learner:
        conditions = conditions.in_small_trees()
    examples_of = progress.phase_began if progress.phase == "finish" and conditions.any else progress.epoch
    rng = generator(Purpose.VALIDATION, state.run.seed, examples_of)

    def score(examples: int, conditions: Conditions) -> Score:
        return evaluate(
            state.validated,
            state.task,
            leaves=capacity_for(longest),
            lengths=(1, longest),
            examples=examples,
            rng=rng,
            conditions=conditions,
        )

    examples = state.run.data.validation
    with state.flat.borrowed(state.average):
        try:
            if not conditions.any:
                plain = score(examples, PLAIN)
                return plain, plain
            plain = score((examples + 1) // 2, PLAIN)
            return plain, plain + score(max(examples // 2, 1), conditions)
        except NotFinite as error:
            raise Diverged(f"validation after epoch {state.progress.epoch + 1}: {error}") from None


def _judge(state: State, score: Score) -> bool:
    """Whether the epoch is the best so far, in which case its weights are kept."""
    progress = state.progress
    quality = [float(state.curriculum.longest), -score.error, -score.loss]
    is_best = quality > progress.best
    if quality[0] == progress.best[0] and progress.phase == "finish" and state.conditions.any:
        is_best = _is_surer(state, score)
    progress.since_better = 0 if quality[:2] > progress.best[:2] else progress.since_better + 1
    if is_best:
        progress.best = quality
        state.best = state.average.clone()
    return is_best


def _is_surer(state: State, score: Score) -> bool:
    """Whether an epoch of an end phase is better than the one that is kept, where all have the same examples.

    One wrong example more or less is luck; decisions that got surer are not.
    """
    kept, least = -state.progress.best[1], score.error
    for record in state.records[state.progress.phase_began :]:
        if record["longest"] == state.curriculum.longest:
            least = min(least, record["error"])
    allowed = least + 1.5 * 100 / score.examples  # one example, and what rounding leaves of it
    return score.error <= allowed and (kept > allowed or score.loss < -state.progress.best[2])


def _record(state: State, score: Score, now: Pace, is_best: bool) -> Epoch:
    progress = state.progress
    loss, wrong, entropy, gradient = (total / state.run.data.batches for total in progress.sums)
    return Epoch(
        epoch=progress.epoch + 1,
        phase=progress.phase,
        longest=state.curriculum.longest,
        error=score.error,
        bit_error=score.part_error,
        loss=score.loss,
        train_loss=loss,
        train_parts={
            part: total / state.run.data.batches
            for part, total in zip(PARTS, progress.parts, strict=True)
            if total
        },
        train_error=100 * wrong,
        entropy=entropy,
        gradient=gradient,
        learning_rate=now.learning_rate,
        exploration=now.exploration,
        best=is_best,
        seconds=round(progress.seconds, 1),
    )


def _error_that_counts(state: State, plain: Score, score: Score) -> float:
    """For the mastery of a stage: that on the paper's questions, once what is practised goes wrong seldom enough."""
    return plain.error / 100 if score.error <= 100 * state.run.data.harder else 1.0


def _advance(state: State, error: float) -> None:
    """On to the next epoch, and to longer inputs or another phase where this error says so."""
    progress, schedule, before = state.progress, state.run.schedule, (state.conditions, state.validated)
    state.curriculum = state.curriculum.after(error)
    grew = state.curriculum.stage > progress.stage
    progress.epoch += 1
    progress.batch, progress.sums, progress.parts = 0, [0.0] * 4, [0.0] * len(PARTS)
    if progress.phase == "opening":
        settled = state.curriculum.longest > schedule.opening
        if settled:
            state.curriculum = state.curriculum.back_to(schedule.opening)
    else:
        settled = state.curriculum.complete and _is_settled(state, error)
    progress.stage = state.curriculum.stage
    phase = phase_after(schedule, progress.phase, progress.phase_began, progress.epoch, settled)
    if phase == "done":
        progress.phase = phase  # all else stays as it is, for who wants it to go on after all
    elif phase != progress.phase or (schedule.restart and grew and phase == "main"):
        state.begin_phase(phase)
    elif phase == first_phase(schedule) and _failed_its_trial(state):
        state.begin_anew()
    if phase != "done" and (state.conditions, state.validated) != before:
        # What is validated on is another thing from here on: errors before do not compare.
        progress.best = Progress().best


def _is_settled(state: State, error: float) -> bool:
    """Whether the main phase is done with the last stage, which did not just begin."""
    if state.run.schedule.patience:
        return state.progress.since_better >= state.run.schedule.patience
    return state.progress.stage == state.curriculum.stage and state.curriculum.masters(error)


def _failed_its_trial(state: State) -> bool:
    """Whether fewer stages were mastered than there was time for; the last one has all the time that is left."""
    trial, took = state.run.schedule.trial, state.progress.epoch - state.progress.phase_began
    return bool(trial) and took >= trial * (state.progress.stage + 1) and not state.curriculum.complete


__all__ = ["Diverged", "Epoch", "Step", "train"]
