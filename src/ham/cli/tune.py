"""`ham tune`: a random search for good hyper-parameters."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from tyro.conf import UseAppendAction, arg

from ham import recipes, tasks
from ham.cli import search
from ham.cli.arguments import Backend, Switch, optional, rare
from ham.cli.tables import TABLE, Forms
from ham.config import Architecture, Run, changed
from ham.core.errors import InputError
from ham.models.kinds import KINDS, KindName, kind_for
from ham.search import space as spaces
from ham.search.plan import Plan, SearchFolder

TRIALS = 64
AS_THE_PAPER_SAYS = {"data.mix": 0.0, "main.reinforce": 1.0, "data.runs": 1, "schedule.finish": 0}
"""Settings of the default space that the paper does not leave open."""


def tune(
    task: Annotated[str | None, optional("TASK")] = None,
    /,
    *,
    model: Annotated[KindName | None, optional(f"{{{','.join(KINDS)}}}")] = None,
    paper: Switch = False,
    trials: Annotated[int | None, optional("INT")] = None,
    hours: Annotated[float | None, optional("H")] = None,
    space: Annotated[Path | None, optional("FILE")] = None,
    set: Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="NAME=VALUES")] = (),
    seed: Annotated[int | None, optional("INT")] = None,
    out: Annotated[Path | None, optional("DIR")] = None,
    resume: Annotated[Path | None, optional("DIR")] = None,
    cluster: search.Clusters = search.HERE,
    success: Annotated[float | None, optional("PERCENT"), rare] = None,
    form: Forms = TABLE,
    backend: Annotated[Backend, rare] = None,
) -> int:
    """Search for good hyper-parameters at random, on this machine or on a Ray cluster.

    Needs Ray, which the extra tune installs. Leaves search.md, best.json and every trial's run.

    Args:
        task: a task's name (see ham tasks), or file.py:Class, which runs that file's code.
        model: what to train; by default lstm+ham, for data structures raw-ham.
        paper: search what the paper leaves open, and train as it does to the letter (recipe TASK-paper).
        trials: how many settings to try; 64 by default, with --resume as many as before.
        hours: stop after so long; --resume goes on.
        space: a JSON file that says what to search; the rest of the default space stays.
        set: the same for one setting, as often as you like: main.learning_rate=log:1e-3:1e-2,
            data.mix=uniform:0:0.5, model.hidden=choice:20,40 or, not searched, schedule.epochs=50.
        seed: of the search; settings and data of a trial follow from it and the trial's number. 0 by default.
        out: folder of the search, runs/tune-TASK-SEED by default; on a cluster it must be shared.
        resume: go on with a search that was stopped or died; no trial that ended is run again.
        success: percent of validation error on the last tree that counts as success, 1 by default.
    """
    resources = cluster.for_hours(hours)
    if resume is not None:
        given: dict[str, Any] = {
            "--model": model,
            "--paper": paper or None,
            "--space": space,
            "--set": set or None,
            "--seed": seed,
            "--out": out,
            "--backend": backend,
        }
        return search.resume(resume, given, task, trials, success, resources, form)
    if task is None:
        raise InputError(f"name a task, as in: ham tune sort; there are {', '.join(tasks.names())}")
    base = _base(search.known_task(task), model, paper)
    given = (AS_THE_PAPER_SAYS if paper else {}) | search.given_settings(space, set)
    base, searched = spaces.merged(base, tasks.get(base.task), given, str(space) if space else "--set")
    plan = Plan(
        base=base,
        space=searched,
        trials=TRIALS if trials is None else trials,
        seed=seed or 0,
        backend=search.engine_for_all(backend),
        success=1.0 if success is None else success,
    )
    folder = SearchFolder(out or Path("runs") / f"tune-{search.file_name(base.task)}-{plan.seed}")
    return search.run(folder, plan, resources, form=form, new=True)


def _base(task: str, model: str | None, paper: bool) -> Run:
    """The run that a search starts from: the task's recipe for this model, or the general defaults.

    What is searched, and limits what else can be set, is taken out of the recipe.
    """
    if paper:
        if model:
            raise InputError("--paper is about the paper's own models, and --model names another")
        return recipes.get(f"{task}{recipes.PAPER}")
    kind = KINDS[model] if model else kind_for(tasks.get(task).online)
    name = task + kind.suffix
    if name in recipes.names() and (run := recipes.get(name)).model.kind == kind.name:
        return changed(run, {"data.runs": 1, "objective.baseline": "learned", "schedule.finish": 0})
    return Run(task, Architecture(kind=kind.name))
