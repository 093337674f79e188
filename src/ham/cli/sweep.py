"""`ham sweep`: one recipe from many seeds."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from tyro.conf import UseAppendAction, arg

from ham import recipes, tasks
from ham.cli import search
from ham.cli.arguments import Backend, optional, rare
from ham.cli.tables import TABLE, Forms
from ham.config import Run
from ham.core.errors import InputError
from ham.search import space as spaces
from ham.search.plan import Plan, SearchFolder, require_trials


def sweep(
    recipe: Annotated[str | None, optional("RECIPE")] = None,
    /,
    *,
    seeds: Annotated[str, arg(metavar="A:B")] = "0:10",
    hours: Annotated[float | None, optional("H")] = None,
    set: Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="NAME=VALUE")] = (),
    out: Annotated[Path | None, optional("DIR")] = None,
    resume: Annotated[Path | None, optional("DIR")] = None,
    cluster: search.Clusters = search.HERE,
    success: Annotated[float | None, optional("PERCENT"), rare] = None,
    task: Annotated[str | None, optional("FILE.PY:CLASS")] = None,
    form: Forms = TABLE,
    backend: Annotated[Backend, rare] = None,
) -> int:
    """Train one recipe from several seeds; success rate, mean, best and worst error.

    Needs Ray, which the extra tune installs. Leaves sweep.md, results.json and every seed's run.

    Args:
        recipe: a recipe's name (those of the tasks), or a file: a best.json, a run's config.json.
        seeds: from A to B, B not included.
        hours: stop after so long; --resume goes on.
        set: change a setting of the recipe, as often as you like: schedule.epochs=50.
        out: folder of the sweep, runs/sweep-RECIPE by default; on a cluster it must be shared.
        resume: go on with a sweep that was stopped or died; no seed that ended is run again.
        success: percent of validation error on the last tree that counts as success, 1 by default.
        task: of a recipe in a file whose task is in a file too, where that is; runs that file's code.
    """
    resources = cluster.for_hours(hours)
    if resume is not None:
        given = {"RECIPE": recipe, "--set": set or None, "--out": out, "--backend": backend}
        return search.resume(resume, given, task, None, success, resources, form, sweep=True)
    if recipe is None:
        raise InputError(f"name a recipe, as in: ham sweep sort; there are {', '.join(recipes.names())}")
    base = _recipe(recipe, task)
    given = search.given_settings(None, set)
    for name, value in given.items():
        if isinstance(value, dict):
            raise InputError(f"--set: {name}: a sweep changes nothing but the seed, give one value")
    base, _ = spaces.merged(base, tasks.get(base.task), given, "--set")
    plan = Plan(
        base=base,
        space={},
        trials=0,
        seed=0,
        backend=search.engine_for_all(backend),
        seeds=_seeds(seeds),
        success=1.0 if success is None else success,
    )
    name = search.file_name(recipe if recipe in recipes.names() else base.task)
    folder = SearchFolder(out or Path("runs") / f"sweep-{name}")
    return search.run(folder, plan, resources, form=form, new=True)


def _recipe(name: str, task: str | None) -> Run:
    run = recipes.read(name)
    if name in recipes.names():
        return run
    return replace(run, task=search.known_task(tasks.named(run.task, task, name)))


def _seeds(text: str) -> tuple[int, ...]:
    found = re.fullmatch(r"(\d{1,9}):(\d{1,9})", text)
    if not found or not int(found[1]) < int(found[2]):
        raise InputError(f"seeds must be A:B with A below B, such as 0:10, got {text!r}")
    seeds = range(int(found[1]), int(found[2]))
    require_trials(len(seeds))
    return tuple(seeds)
