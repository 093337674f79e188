"""`ham train`: a recipe, single settings changed by flags, progress, and a run that can be resumed."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

from tyro.conf import Positional, Suppress, arg

from ham import recipes, tasks
from ham.cli.arguments import HELP, HELP_ALL, Backend, Switch, optional, parse, together
from ham.config import Architecture, Data, Objective, Optimiser, Options, Phase, Run, Schedule, format_1
from ham.core.errors import InputError
from ham.core.install import install
from ham.core.text import shell_word
from ham.models.kinds import kind_for
from ham.tasks import Practice

if TYPE_CHECKING:
    from ham.runs import RunFolder
    from ham.train.loop import Epoch, Step

COMMAND = "ham train"
COMPONENTS = ("model", "data", "objective", "optimiser", "schedule", "main", "end")
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
    execution: Annotated[Execution, together()]
    out: Annotated[Path | None, optional("DIR")] = None
    """Folder of the run; by default runs/TASK-SEED."""
    recipe: Annotated[str | None, optional("NAME_OR_FILE")] = None
    """Take the defaults from another recipe, or from a config.json."""
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
    epochs: Annotated[int | None, arg(name="schedule.epochs", metavar="INT", help_behavior_hint="")] = None
    """Go on for longer, to so many epochs in all; even with a run that has ended."""


def train(argv: list[str]) -> int:
    """Start or resume a run and follow it to its end."""
    if any(word.partition("=")[0] == "--resume" for word in argv):
        resumed = _resumed(argv)
        return _follow(None, resumed.resume, resumed.execution, resumed.task, resumed.epochs)
    _refuse_first_names(argv)
    start = _defaults(argv)
    new = _new(start, argv)
    run = Run(
        task=_canonical(new.task),
        practice=_options(new.practice),
        seed=new.seed,
        init=start.init,
        **{name: getattr(new, name) for name in COMPONENTS},
    )
    return _follow(run, new.out or _folder_for(run), new.execution)


def _refuse_first_names(argv: list[str]) -> None:
    """Say what a setting is called now, to who knows it by the name it had first."""
    for flag in (word.partition("=")[0] for word in argv):
        if name := format_1.NAMES.get(flag.removeprefix("--").replace("-", "_")):
            raise InputError(f"{flag} is --{name.replace('_', '-')} now")


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
    """The run that the flags change: a recipe, and where it starts from a trained model, that model's architecture."""
    run = _recipe(argv)
    if name := _value_of("--init", argv):
        from ham.runs import lasting, run_of

        return replace(run, model=run_of(name).model, init=lasting(name))
    return run


def _recipe(argv: list[str]) -> Run:
    """The recipe asked for, or that of the task."""
    task = argv[0] if argv and not argv[0].startswith("-") else None
    if name := _value_of("--recipe", argv):
        run = recipes.read(name)
        return replace(run, task=tasks.named(run.task, task, name, flag=f"{COMMAND} "))
    if task:
        return recipe_for(task)
    if HELP & set(argv):
        return Run("")
    raise InputError(
        f"name the task first, as in: {COMMAND} sort --seed 1; there are {', '.join(tasks.names())}"
    )


def recipe_for(task: str) -> Run:
    """The recipe of a task, or the general defaults for one that has none."""
    task = _canonical(task)
    if task in recipes.names():
        return recipes.get(task)
    return Run(task, Architecture(kind=kind_for(tasks.get(task).online).name))


def _value_of(flag: str, argv: list[str]) -> str | None:
    for place, word in enumerate(argv):
        name, equals, value = word.partition("=")
        if name == flag:
            return value if equals else "".join(argv[place + 1 : place + 2])
    return None


def _canonical(task: str) -> str:
    """A task by the name it gives itself; one in a file stays where it is."""
    return task if ".py:" in task else tasks.get(task).name


def _folder_for(run: Run) -> Path:
    return Path("runs") / f"{run.task.rpartition(':')[2].lower()}-{run.seed}"


def _follow(
    run: Run | None,
    path: Path,
    execution: Execution,
    task: str | None = None,
    epochs: int | None = None,
) -> int:
    """Train a new run in a folder, or without one the run that is there."""
    from ham.cli import engine, terminal
    from ham.runs import RunFolder
    from ham.train import loop
    from ham.train.state import prolonged

    engine.prepare(execution.backend, execution.threads)
    folder = RunFolder(path)
    if execution.tensorboard:
        _writer()
    if run is None:
        run = _there(folder, task)
        if epochs is not None:
            run = prolonged(run, folder, epochs)
    else:
        _check(run)
        folder.begin(run)
    engine.announce()
    try:
        with folder.locked():
            done = _batches_done(folder, run)
            with closing(loop.train(run, folder)) as events:
                logged = _logged(events, path, run) if execution.tensorboard else events
                terminal.training(logged, run, done)
    except KeyboardInterrupt:
        again = f" --task {shell_word(run.task)}" if ".py:" in run.task else ""
        print(f"ham: stopped; continue with: {COMMAND} --resume {shell_word(path)}{again}", file=sys.stderr)
        return 130
    print(_summary(folder, run, path))
    if execution.evaluate:
        _evaluate(path, run)
    return 0


def _there(folder: RunFolder, task: str | None) -> Run:
    """The run in a folder; code in a file is only run for who named the file."""
    run = folder.run()
    if task is not None and ".py:" not in run.task:
        raise InputError(f"the run in {folder.path} is of {run.task}: --task is for a task in a file")
    return replace(run, task=tasks.named(run.task, task, folder.path))


def _check(run: Run) -> None:
    """Refuse a run that cannot begin before anything is written."""
    from ham.core.tree import capacity_for
    from ham.runs import start_from
    from ham.tasks.hard_cases import practised_cases

    task = tasks.get(run.task)
    model = run.model.build(task)
    if run.init:
        start_from(model, run.init)
    if (least := capacity_for(task.shortest)) > run.data.leaves:
        raise InputError(f"{task.name} needs at least {least} leaves, got {run.data.leaves}")
    task.practised(run.practice)
    if run.main.hard or run.end.hard:
        practised_cases(task)


def _batches_done(folder: RunFolder, run: Run) -> int:
    saved = folder.read_state()
    return saved[1].get("epoch", 0) * run.data.batches + saved[1].get("batch", 0) if saved else 0


def _summary(folder: RunFolder, run: Run, path: Path) -> str:
    best = folder.kept()
    reached = "" if best["longest"] == run.data.leaves else f" (of {run.data.leaves} wanted)"
    return (
        f"best validation error {best['error']:.2f}% on inputs up to length {best['longest']}{reached}; "
        f"measure it with: ham evaluate {shell_word(path)}"
    )


def _evaluate(path: Path, run: Run) -> None:
    from ham import runs
    from ham.cli import evaluate

    trained = runs.load(path, run.task)
    print(f"{trained.task.name}, test seed {run.seed}")
    evaluate.table(evaluate.both_protocols(trained, TEST_EXAMPLES, run.seed))


def _writer() -> type:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise InputError(f"--tensorboard needs a package: {install('tensorboard')}") from None
    return SummaryWriter


def _logged(events: Iterable[Step | Epoch], path: Path, run: Run) -> Iterator[Step | Epoch]:
    """The events, each epoch's numbers written for TensorBoard as they pass."""
    with closing(_writer()(str(path / "tensorboard"))) as writer:
        for event in events:
            if not hasattr(event, "batch"):
                for name, value in asdict(event).items():
                    if isinstance(value, (int, float)) and name != "epoch":
                        writer.add_scalar(name, value, event.epoch * run.data.batches)
            yield event
