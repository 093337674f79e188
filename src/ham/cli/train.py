"""`ham train`: a recipe, single settings changed by flags, progress, and a run that can be resumed."""

from __future__ import annotations

import sys
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

from tyro.conf import Positional, Suppress, arg

from ham import recipes, tasks
from ham.cli.arguments import HELP, HELP_ALL, Backend, Switch, optional, parse, together
from ham.config import (
    Architecture,
    Data,
    Objective,
    Optimiser,
    Options,
    Phase,
    Run,
    Schedule,
    changed,
    format_1,
)
from ham.core import own
from ham.core.errors import InputError
from ham.core.text import shell_word
from ham.models.controllers import CONTROLLERS
from ham.models.kinds import KINDS
from ham.tasks import Practice

if TYPE_CHECKING:
    from ham.runs import Trained

COMMAND = "ham train"
BASELINE = "--objective.baseline"
COMPONENTS = ("model", "data", "objective", "optimiser", "schedule", "main", "end", "opening")
COMMON = {
    "model.kind", "model.cells", "model.size", "model.hidden",
    "data.batch", "data.batches", "data.leaves",
    "schedule.epochs", "schedule.finish",
    "main.learning_rate", "main.exploration",
}  # fmt: skip
"""What `--help` tells of a run's settings, besides its seed."""
TEST_EXAMPLES = 2500


@dataclass(frozen=True)
class Execution:
    """How training is run and shown; none of it changes the result."""

    backend: Backend = None
    """Engine to run on; by default $HAM_BACKEND, or auto."""
    threads: int = 1
    """Threads to run on; plain PyTorch is fastest with one."""
    tensorboard: Switch = False
    """Write TensorBoard files into the run's folder too."""
    evaluate: Switch = False
    """Print the test and generalisation error at the end."""


@dataclass(frozen=True)
class New:
    """Train a model on a task. Defaults are those of the task's recipe; a flag changes one setting.

    To continue a run that was stopped: ham train --resume DIR
    """

    task: Positional[Annotated[str, optional("TASK")]]
    """A task's name (see ham tasks), or file.py:Class, which runs that file's code."""
    seed: int
    """Of the first weights and of all examples."""
    model: Architecture
    practice: Practice
    data: Data
    objective: Objective
    optimiser: Optimiser
    schedule: Schedule
    main: Phase
    end: Phase
    opening: Phase
    execution: Annotated[Execution, together()]
    out: Annotated[Path | None, optional("DIR")] = None
    """Folder of the run; by default runs/TASK-SEED."""
    recipe: Annotated[str | None, optional("NAME_OR_FILE")] = None
    """Take the defaults from another recipe, or from a config.json."""
    paper: Switch = False
    """Take the defaults from the paper, to the letter: the recipe TASK-paper."""
    init: Annotated[str | None, optional("NAME_OR_DIR")] = None
    """Start from the weights of a trained model: a run's folder, a checkpoint, or a shipped one; its architecture is
    the default then."""


@dataclass(frozen=True)
class Resumed:
    """Continue a run that was stopped, to the same result as if it never had been."""

    resume: Annotated[Path, arg(metavar="DIR")]
    """Folder of the run."""
    execution: Annotated[Execution, together()]
    task: Annotated[str | None, optional("FILE.PY:CLASS")] = None
    """Of a run whose task is in a file, where that is; runs that file's code."""
    baseline: Annotated[str | None, optional("FILE.PY:FUNCTION")] = None
    """Of a run whose objective.baseline is in a file, where that is; runs that file's code."""
    epochs: Annotated[int | None, arg(name="schedule.epochs", metavar="INT", help_behavior_hint="")] = None
    """Go on for longer, to so many epochs in all; even with a run that has ended."""


def train(argv: list[str]) -> int:
    """Start or resume a run and follow it to its end."""
    if any(word.partition("=")[0] == "--resume" for word in argv):
        resumed = _resumed(argv)
        return _follow(None, resumed.resume, resumed.execution, resumed)
    _refuse_first_names(argv)
    start = _defaults(argv)
    try:
        new = _new(start, argv)
        run = Run(
            task=_canonical(new.task),
            practice=_options(new.practice),
            seed=new.seed,
            init=start.init,
            **{name: getattr(new, name) for name in COMPONENTS},
        )
    except InputError as error:
        raise InputError(f"{error}{_other_recipe(start, argv)}") from None
    from ham.train.start import folder_for

    return _follow(run, new.out or folder_for(run), new.execution)


def _refuse_first_names(argv: list[str]) -> None:
    """Say what a setting is called now, to who knows it by the name it had first."""
    for flag in (word.partition("=")[0] for word in argv):
        if name := format_1.NAMES.get(flag.removeprefix("--").replace("-", "_")):
            raise InputError(f"{flag} is --{name.replace('_', '-')} now")


def _other_recipe(start: Run, argv: list[str]) -> str:
    """What to say to who wants another kind of model than the recipe's, whose settings do not fit it."""
    kind = KINDS.get(_value_of("--model.kind", argv) or "", start.model.traits)
    name = start.task + kind.suffix
    fits = kind is not start.model.traits and name in recipes.names()
    return f"; a recipe for {kind.name} is --recipe {name}" if fits else ""


def _new(start: Run, argv: list[str]) -> New:
    """What the flags make of a run."""
    options = tasks.get(start.task).practised(start.practice) if start.task else Practice()
    parts = {name: getattr(start, name) for name in COMPONENTS}
    default = New(task=start.task, seed=start.seed, practice=options, execution=Execution(), **parts)
    short = HELP_ALL not in argv and bool(HELP & set(argv))
    if short:
        default = _without_rare(default)
    return parse(type(default), argv, COMMAND, default, more=short)


def _without_rare(value: Any, part: str = "") -> Any:
    """The same, of a type whose help tells the common settings only."""
    hints = get_type_hints(type(value), include_extras=True)
    values = {field.name: getattr(value, field.name) for field in fields(value)}
    for name, inner in values.items():
        if is_dataclass(inner) and name != "execution":
            values[name] = _without_rare(inner, f"{part}{name}.")
            hints[name] = type(values[name])
        elif part and f"{part}{name}" not in COMMON:
            hints[name] = Annotated[hints[name], Suppress]
    own: Any = type(value)
    made: Any = type(own.__name__, (own,), {"__annotations__": hints, "__doc__": own.__doc__})
    return dataclass(frozen=True, kw_only=True)(made)(**values)


def _options(practice: Practice) -> Options:
    """A task's options where they are not its defaults."""
    default = type(practice)()
    return Options(
        **{name: value for name, value in vars(practice).items() if value != getattr(default, name)}
    )


def _resumed(argv: list[str]) -> Resumed:
    try:
        return parse(Resumed, argv, COMMAND)
    except InputError as error:
        raise InputError(
            f"--resume continues a run with the settings it was begun with, but for --schedule.epochs: {error}"
        ) from None


def _defaults(argv: list[str]) -> Run:
    """The run that the flags change: a recipe, with the architecture of the model and the controller that are named."""
    run = _recipe(argv)
    if name := _value_of("--init", argv):
        from ham.train.start import starting_from

        run = starting_from(run, name)
    controller = _value_of("--model.controller", argv)
    return changed(run, {"model.controller": controller}) if controller in CONTROLLERS else run


def _recipe(argv: list[str]) -> Run:
    """The recipe asked for, or that of the task."""
    task = argv[0] if argv and not argv[0].startswith("-") else None
    name = _value_of("--recipe", argv)
    if task and "--paper" in argv:
        if name:
            raise InputError("--paper is a recipe of its own, and --recipe names another")
        return recipes.get(f"{_canonical(task)}{recipes.PAPER}")
    if name:
        run = recipes.read(name)
        own.named(run.objective.baseline, _value_of(BASELINE, argv), name, "baseline", f"{BASELINE} ")
        return replace(run, task=tasks.named(run.task, task, name, flag=f"{COMMAND} "))
    if task:
        return recipes.for_task(task)
    if HELP & set(argv):
        return Run("")
    raise InputError(
        f"name the task first, as in: {COMMAND} sort --seed 1; there are {', '.join(tasks.names())}"
    )


def _value_of(flag: str, argv: list[str]) -> str | None:
    for place, word in enumerate(argv):
        name, equals, value = word.partition("=")
        if name == flag:
            return value if equals else "".join(argv[place + 1 : place + 2])
    return None


def _canonical(task: str) -> str:
    """A task by the name it gives itself; one in a file stays where it is."""
    return task if ".py:" in task else tasks.get(task).name


def _follow(run: Run | None, folder: Path, execution: Execution, resumed: Resumed | None = None) -> int:
    """Train a new run in a folder, or without one the run that is there."""
    from ham.cli import engine
    from ham.train import estimators, start

    engine.prepare(execution.backend, execution.threads)
    try:
        if resumed is not None:
            trained = start.resume(
                folder,
                epochs=resumed.epochs,
                task=resumed.task,
                baseline=resumed.baseline,
                tensorboard=execution.tensorboard,
            )
        else:
            assert run is not None
            # Who named the file on the command line, or in a recipe they were asked about, runs its code.
            named = run.objective.baseline
            estimator = estimators.from_file(named) if own.is_own(named) else None
            trained = start.train(run, out=folder, estimator=estimator, tensorboard=execution.tensorboard)
    except KeyboardInterrupt:
        task, baseline = (resumed.task, resumed.baseline) if resumed else _named(run)
        again = f"{COMMAND} --resume {shell_word(folder)}{_own(task)}"
        again += f" --baseline {shell_word(baseline)}" if baseline and own.is_own(baseline) else ""
        print(f"ham: stopped; continue with: {again}", file=sys.stderr)
        return 130
    print(_summary(trained, folder))
    if execution.evaluate:
        _evaluate(trained)
    return 0


def _named(run: Run | None) -> tuple[str, str]:
    """Its task and baseline, which may be somebody's own."""
    assert run is not None
    return run.task, run.objective.baseline


def _summary(trained: Trained, path: Path) -> str:
    best = next((epoch for epoch in reversed(trained.log) if epoch["best"]), None)
    if best is None:
        raise InputError(f"none of the epochs in {path} is recorded as the best")
    leaves = trained.run.data.leaves
    reached = "" if best["longest"] == leaves else f" (of {leaves} wanted)"
    return (
        f"best validation error {best['error']:.2f}% on inputs up to length {best['longest']}{reached}\n"
        f"measure it with: ham evaluate {shell_word(path)}{_own(trained.run.task)}"
    )


def _own(task: str | None) -> str:
    """What a command needs to be told of a task in a file, besides the run's folder."""
    return f" --task {shell_word(task)}" if task and ".py:" in task else ""


def _evaluate(trained: Trained) -> None:
    from ham.cli import evaluate
    from ham.cli.tables import TABLE
    from ham.use.evaluate import evaluate as measured

    seed = trained.run.seed
    rows = measured(trained, examples=TEST_EXAMPLES, seed=seed)
    TABLE.show([evaluate.table(rows)], rows, note=f"{trained.task.name}, test seed {seed}")
