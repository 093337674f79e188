"""`ham tune` and `ham sweep`."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import UseAppendAction, arg

from ham import ops, recipes, tasks
from ham.config import Architecture, Kind, Run, Training
from ham.errors import InputError
from ham.ops import Backend
from ham.runs import RunFolder, read_text
from ham.search import engine, report, screen
from ham.search import space as spaces
from ham.search.engine import Way
from ham.search.plan import Outcome, Plan, SearchFolder, outcomes, ranked

TRIALS = 64


def tune(
    task: Annotated[str | None, arg(metavar="TASK")] = None,
    /,
    *,
    model: Annotated[Kind | None, arg(metavar="{lstm+ham,raw-ham,lstm,lstm+a}")] = None,
    trials: Annotated[int | None, arg(metavar="INT")] = None,
    hours: Annotated[float | None, arg(metavar="H")] = None,
    space: Annotated[Path | None, arg(metavar="FILE")] = None,
    set: Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="NAME=VALUES")] = (),
    seed: Annotated[int | None, arg(metavar="INT")] = None,
    out: Annotated[Path | None, arg(metavar="DIR")] = None,
    resume: Annotated[Path | None, arg(metavar="DIR")] = None,
    address: Annotated[str | None, arg(metavar="auto|HOST:PORT")] = None,
    workers: Annotated[int | None, arg(metavar="INT")] = None,
    cores: int = 1,
    success: Annotated[float | None, arg(metavar="PERCENT")] = None,
    backend: Annotated[Backend | None, arg(metavar="{auto,native,reference}")] = None,
) -> int:
    """Search for good hyper-parameters at random, on this machine or on a Ray cluster.

    Needs Ray: pip install 'ham-memory[tune]'. Leaves search.md, best.json and every trial's run.

    Args:
        task: a task's name (see ham tasks), or file.py:Class, which runs that file's code.
        model: what to train; by default lstm+ham, for data structures raw-ham.
        trials: how many settings to try; 64 by default, with --resume as many as before.
        hours: stop after so long; --resume goes on.
        space: a JSON file that says what to search; the rest of the default space stays.
        set: the same for one setting, as often as you like: training.learning_rate=log:1e-3:1e-2,
            training.mix=uniform:0:0.5, model.hidden=choice:20,40 or, not searched, training.epochs=50.
        seed: of the search; settings and data of a trial follow from it and the trial's number. 0 by default.
        out: folder of the search, runs/tune-TASK-SEED by default; on a cluster it must be shared.
        resume: go on with a search that was stopped or died; no trial that ended is run again.
        address: a Ray cluster, auto for the one this machine belongs to; by default this machine alone.
        workers: trials at a time, by default as many as there are cores.
        cores: cores for each trial.
        success: percent of validation error on the last tree that counts as success, 1 by default.
        backend: engine of all trials; by default $HAM_BACKEND, or auto.
    """
    way = Way(address, workers, cores, hours)
    if resume is not None:
        given: dict[str, Any] = {"--model": model, "--space": space, "--set": set or None, "--seed": seed}
        given |= {"--out": out, "--backend": backend}
        return _resume(resume, given, task, trials, success, way)
    if task is None:
        raise InputError(f"name a task, as in: ham tune sort; there are {', '.join(tasks.names())}")
    base = _base(_known(task), model)
    given = _given(space, set)
    base, searched = spaces.merged(base, tasks.get(base.task), given, str(space) if space else "--set")
    plan = Plan(
        base=base,
        space=searched,
        trials=TRIALS if trials is None else trials,
        seed=seed or 0,
        backend=_engine_for_all(backend),
        success=1.0 if success is None else success,
    )
    folder = SearchFolder(out or Path("runs") / f"tune-{_file_name(base.task)}-{plan.seed}")
    return _run(folder, plan, way, new=True)


def sweep(
    recipe: Annotated[str | None, arg(metavar="RECIPE")] = None,
    /,
    *,
    seeds: Annotated[str, arg(metavar="A:B")] = "0:10",
    hours: Annotated[float | None, arg(metavar="H")] = None,
    set: Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="NAME=VALUE")] = (),
    out: Annotated[Path | None, arg(metavar="DIR")] = None,
    resume: Annotated[Path | None, arg(metavar="DIR")] = None,
    address: Annotated[str | None, arg(metavar="auto|HOST:PORT")] = None,
    workers: Annotated[int | None, arg(metavar="INT")] = None,
    cores: int = 1,
    success: Annotated[float | None, arg(metavar="PERCENT")] = None,
    json: bool = False,
    task: Annotated[str | None, arg(metavar="FILE.PY:CLASS")] = None,
    backend: Annotated[Backend | None, arg(metavar="{auto,native,reference}")] = None,
) -> int:
    """Train one recipe from several seeds; success rate, mean, best and worst error.

    Needs Ray: pip install 'ham-memory[tune]'. Leaves sweep.md, results.json and every seed's run.

    Args:
        recipe: a recipe's name (those of the tasks), or a file: a best.json, a run's config.json.
        seeds: from A to B, B not included.
        hours: stop after so long; --resume goes on.
        set: change a setting of the recipe, as often as you like: training.epochs=50.
        out: folder of the sweep, runs/sweep-RECIPE by default; on a cluster it must be shared.
        resume: go on with a sweep that was stopped or died; no seed that ended is run again.
        address: a Ray cluster, auto for the one this machine belongs to; by default this machine alone.
        workers: seeds at a time, by default as many as there are cores.
        cores: cores for each seed.
        success: percent of validation error on the last tree that counts as success, 1 by default.
        json: print the results as JSON instead of a table.
        task: of a recipe in a file whose task is in a file too, where that is; runs that file's code.
        backend: engine of all seeds; by default $HAM_BACKEND, or auto.
    """
    way = Way(address, workers, cores, hours)
    if resume is not None:
        given = {"RECIPE": recipe, "--set": set or None, "--out": out, "--backend": backend}
        return _resume(resume, given, task, None, success, way, json, sweep=True)
    if recipe is None:
        raise InputError(f"name a recipe, as in: ham sweep sort; there are {', '.join(recipes.names())}")
    base = _recipe(recipe, task)
    given = _given(None, set)
    for name, value in given.items():
        if isinstance(value, dict):
            raise InputError(f"--set: {name}: a sweep changes nothing but the seed, give one value")
    base, _ = spaces.merged(base, tasks.get(base.task), given, "--set")
    plan = Plan(
        base=base,
        space={},
        trials=0,
        seed=0,
        backend=_engine_for_all(backend),
        seeds=_seeds(seeds),
        success=1.0 if success is None else success,
    )
    name = _file_name(recipe if recipe in recipes.names() else base.task)
    folder = SearchFolder(out or Path("runs") / f"sweep-{name}")
    return _run(folder, plan, way, new=True, json=json)


def _resume(
    path: Path,
    given: dict[str, Any],
    task: str | None,
    trials: int | None,
    success: float | None,
    way: Way,
    json: bool = False,
    sweep: bool = False,
) -> int:
    for name, value in given.items():
        if value is not None:
            raise InputError(f"--resume goes on with what was searched: it takes no {name}")
    folder = SearchFolder(path)
    plan = folder.plan()
    named = tasks.named(plan.base.task, task, path, flag="--task " if sweep else "ham tune ")
    if _known(named) != plan.base.task:
        raise InputError(f"the search in {path} is of {plan.base.task}, not of {named}")
    if plan.sweep != sweep:
        command = "ham sweep" if plan.sweep else "ham tune"
        raise InputError(f"{path} holds another kind of search; go on with: {command} --resume {path}")
    if trials is not None:
        if trials < plan.trials:
            raise InputError(
                f"{path} was begun with {plan.trials} trials; there can be more of them, not {trials}"
            )
        plan = replace(plan, trials=trials)
    if success is not None:
        plan = replace(plan, success=success)
    return _run(folder, plan, way, new=False, json=json)


def _run(folder: SearchFolder, plan: Plan, way: Way, *, new: bool, json: bool = False) -> int:
    """Run a search to its end, or until it is stopped, and report."""
    plan.check()
    if new:
        folder.refuse_if_taken()
    stopped = False
    if new or not all(outcome.ended for outcome in outcomes(folder, plan)):
        with engine.connected(way):
            if new:
                folder.begin(plan)
            stopped = _follow(folder, plan, way)
    folder.write_plan(plan)
    found = outcomes(folder, plan)
    report.write(folder, plan, found)
    _print(folder, plan, found, json)
    if not all(outcome.ended for outcome in found):
        # Code in a file is only run for who names the file, each time anew.
        task = plan.base.task if ".py:" in plan.base.task else ""
        command = f"ham {'sweep' if plan.sweep else f'tune {task}'.strip()} --resume {folder.path}"
        command += f" --task {task}" if plan.sweep and task else ""
        print(f"ham: not all trials ended; go on with: {command}", file=sys.stderr)
    if stopped:
        return 130
    return 0 if ranked(found) else 1


def _follow(folder: SearchFolder, plan: Plan, way: Way) -> bool:
    """Run what is left of a search while it is shown; whether it was interrupted."""
    with RunFolder(folder.path).locked():
        folder.write_plan(plan)
        try:
            with screen.shown(plan, outcomes(folder, plan), way.hours) as board:
                engine.run(folder, plan, way, board)
        except KeyboardInterrupt:
            return True
    return False


def _print(folder: SearchFolder, plan: Plan, found: Sequence[Outcome], json: bool) -> None:
    from ham import show

    if json:
        print(read_text(folder.path / report.RESULTS), end="")
        return
    shown = found if plan.sweep else ranked(found)[: report.MOST_SHOWN]
    if shown:
        columns = ("seed" if plan.sweep else "trial", *report.COLUMNS)
        show.table(columns, map(report.cells, shown), right=(columns[0], *report.COLUMNS[1:]))
    print(report.in_words(plan, found))
    if not plan.sweep and ranked(found):
        print(f"train the best again with: ham train --recipe {folder.path / report.BEST}")
    print(f"report: {folder.path / ('sweep.md' if plan.sweep else 'search.md')}")


def _base(task: str, model: Kind | None) -> Run:
    """The run that a search starts from: the task's recipe for this model, or the general defaults.

    What is searched, and limits what else can be set, is taken out of the recipe.
    """
    kind = model or ("raw-ham" if tasks.get(task).online else "lstm+ham")
    for name in (task, f"{task}-{kind}"):
        if name in recipes.names() and (run := recipes.get(name)).model.kind == kind:
            return replace(run, training=replace(run.training, runs=1, baseline="learned", finish=0))
    return Run(task, Architecture(kind=kind), Training())


def _recipe(name: str, task: str | None) -> Run:
    if name in recipes.names():
        return recipes.get(name)
    path = Path(name)
    if not path.is_file():
        raise InputError(f"{name} is neither a recipe ({', '.join(recipes.names())}) nor a file")
    run = Run.from_json(read_text(path), name)
    return replace(run, task=_known(tasks.named(run.task, task, name)))


def _known(task: str) -> str:
    """A task by the name it gives itself; one in a file by where that is, for workers run elsewhere."""
    if ".py:" not in task:
        return tasks.get(task).name
    path, _, name = task.rpartition(":")
    return f"{Path(path).absolute()}:{name}"


def _given(path: Path | None, flags: tuple[str, ...]) -> dict[str, Any]:
    from_file = spaces.from_file(read_text(path), str(path)) if path else {}
    return from_file | spaces.from_flags(flags)


def _seeds(text: str) -> tuple[int, ...]:
    found = re.fullmatch(r"(\d{1,9}):(\d{1,9})", text)
    if not found or not int(found[1]) < int(found[2]):
        raise InputError(f"seeds must be A:B with A below B, such as 0:10, got {text!r}")
    return tuple(range(int(found[1]), int(found[2])))


def _engine_for_all(backend: Backend | None) -> str:
    if backend is not None:
        ops.set_backend(backend)
    return engine.on_this_machine(ops.backend())


def _file_name(task: str) -> str:
    return re.sub(r"[^a-z0-9_+-]", "-", task.rpartition(":")[2].lower())
