"""A run from its beginning, or from where it was stopped, to its end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from ham import recipes, tasks
from ham.config import Run, changed, unused
from ham.core import own
from ham.core.errors import InputError
from ham.core.files import require_no_link
from ham.core.install import install
from ham.core.tree import capacity_for
from ham.ops import table
from ham.runs import ModelLike, RunFolder, Trained, lasting, load, read_tensors, run_of, start_from
from ham.tasks import Task
from ham.tasks.hard_cases import practised_cases
from ham.train import estimators
from ham.train import progress as shown
from ham.train.estimators import Estimator
from ham.train.loop import Epoch, Step
from ham.train.loop import train as events_of
from ham.train.state import prolonged


def train(
    run: str | Task | Run,
    *,
    seed: int | None = None,
    changes: Mapping[str, Any] | None = None,
    init: ModelLike | None = None,
    out: str | Path | None = None,
    estimator: Estimator | None = None,
    progress: bool = True,
    tensorboard: bool = False,
) -> Trained:
    """Train a model and return it with its best weights; `.log` has an epoch a row.

    Ctrl-C stops it and loses nothing: `ham.resume(folder)` goes on.

    Args:
        run: a task's name, a task, the name of a recipe (`ham.recipes.names()`), or a whole `ham.Run`.
        seed: of the first weights and of all examples; by default the run's own, which is 0 in every recipe.
        changes: single settings, by the names of the command line's flags: `{"data.leaves": 8}`.
        init: a trained model to start from, or what `ham.load` takes; its architecture is the default then.
        out: folder of the run; by default runs/TASK-SEED. It must not hold a run yet.
        estimator: a function to use instead of the one that `objective.baseline` names, see `ham.train.estimators`.
        progress: show how it goes, as a bar on a terminal or in a notebook, elsewhere as a line an epoch.
        tensorboard: write TensorBoard files into the folder too.
    """
    whole = _run_of(run) if init is None else starting_from(_run_of(run), init)
    whole = changed(whole, {**(changes or {}), **({} if seed is None else {"seed": seed})})
    folder = RunFolder(out or folder_for(whole))
    if tensorboard:
        _writer()
    # A name that nobody knows is refused before anything is written.
    estimator or estimators.get(whole.objective.baseline)
    require_possible(whole)
    folder.begin(whole)
    return _followed(whole, folder, estimator, progress, tensorboard)


def resume(
    folder: str | Path,
    *,
    epochs: int | None = None,
    task: str | None = None,
    baseline: str | None = None,
    estimator: Estimator | None = None,
    progress: bool = True,
    tensorboard: bool = False,
) -> Trained:
    """Continue a run that was stopped, to the same result as if it never had been.

    Args:
        folder: of the run.
        epochs: go on for longer, to so many in all; even with a run that has ended.
        task: of a run whose task is in a file, where that is (`file.py:Class`); runs that file's code.
        baseline: of a run whose `objective.baseline` is in a file, where that is; runs that file's code.
        estimator: of a run that was begun with a function, that function.
        progress: show how it goes, as in `ham.train`.
        tensorboard: write TensorBoard files into the folder too.
    """
    there = RunFolder(folder)
    run = there.run()
    named = run.objective.baseline
    for flag, given, known in (("task", task, run.task), ("baseline", baseline, named)):
        if given is not None and not own.is_own(known):
            raise InputError(f"the run in {there.path} is of {known}: --{flag} is for a {flag} in a file")
    if own.is_own(named) and estimator is None:
        named = own.named(named, baseline, there.path, "baseline", "--baseline ")
        estimator = estimators.from_file(named)
        run = replace(run, objective=replace(run.objective, baseline=named))
    if tensorboard:
        _writer()
    run = replace(run, task=tasks.named(run.task, task, there.path))
    if epochs is not None:
        run = prolonged(run, there, epochs)
    return _followed(run, there, estimator, progress, tensorboard)


def starting_from(run: Run, model: ModelLike) -> Run:
    """The run with a trained model's architecture, and its weights as the first ones."""
    file = _file_of(model) if isinstance(model, Trained) else model
    architecture = run_of(file).model
    return replace(changed(run, unused(architecture)), model=architecture, init=lasting(file))


def _file_of(trained: Trained) -> Path:
    """Where a model was loaded from: a run names its first weights, so that it can be run again."""
    if trained.path is not None:
        kept, here = read_tensors(trained.path)[0], trained.model.state_dict()
        if all(torch.equal(kept[name], here[name]) for name in kept):
            return trained.path
    raise InputError(
        "the weights of this model are in no file to start from; write one with .save_pretrained(folder)"
    )


def _run_of(run: str | Task | Run) -> Run:
    if isinstance(run, Run):
        return run
    if isinstance(run, Task):
        return recipes.for_task(tasks.register(type(run)).name)
    return recipes.get(run) if run in recipes.names() else recipes.for_task(run)


def folder_for(run: Run) -> Path:
    """Where a run goes that nobody gave a folder."""
    return Path("runs") / f"{run.task.rpartition(':')[2].lower()}-{run.seed}"


def require_possible(run: Run) -> None:
    """Refuse a run that cannot begin before anything is written."""
    task = tasks.get(run.task)
    model = run.model.build(task)
    if run.init:
        start_from(model, run.init)
    if (least := capacity_for(task.shortest)) > run.data.leaves:
        raise InputError(f"{task.name} needs at least {least} leaves, got {run.data.leaves}")
    task.practised(run.practice)
    if any(phase.hard for phase in (run.opening, run.main, run.end)):
        practised_cases(task)


def _followed(
    run: Run, folder: RunFolder, estimator: Estimator | None, progress: bool, tensorboard: bool
) -> Trained:
    # An engine that has yet to be built says so before a bar owns the terminal.
    table.announce()
    with folder.locked():
        done = _batches_done(folder, run)
        with closing(events_of(run, folder, estimator=estimator)) as events:
            seen = _logged(events, folder.path, run) if tensorboard else events
            if progress:
                shown.training(seen, run, done, part=tasks.get(run.task).outputs.part)
            else:
                for _ in seen:
                    pass
    return load(folder.path, run.task)


def _batches_done(folder: RunFolder, run: Run) -> int:
    saved = folder.read_state()
    return saved[1].get("epoch", 0) * run.data.batches + saved[1].get("batch", 0) if saved else 0


def _writer() -> type:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise InputError(f"--tensorboard needs a package: {install('tensorboard')}") from None
    return SummaryWriter


def _logged(events: Iterable[Step | Epoch], path: Path, run: Run) -> Iterator[Step | Epoch]:
    """The events, each epoch's numbers written for TensorBoard as they pass."""
    require_no_link(path / "tensorboard")
    with closing(_writer()(str(path / "tensorboard"))) as writer:
        for event in events:
            if isinstance(event, Epoch):
                for name, value in asdict(event).items():
                    if isinstance(value, (int, float)) and name != "epoch":
                        writer.add_scalar(name, value, event.epoch * run.data.batches)
            yield event


__all__ = ["folder_for", "require_possible", "resume", "starting_from", "train"]
