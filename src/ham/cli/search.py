"""What `ham tune` and `ham sweep` share: a search is begun or resumed, followed and reported."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from ham import ops, tasks
from ham.cli.arguments import Backend, optional, rare, together
from ham.cli.engine import listen
from ham.cli.tables import Form, Table
from ham.core.errors import InputError
from ham.core.files import read_json, read_text, require_room
from ham.core.text import shell_word, visible
from ham.runs import RunFolder
from ham.search import engine, report, screen
from ham.search import space as spaces
from ham.search.engine import Resources
from ham.search.plan import Outcome, Plan, SearchFolder, outcomes, ranked


@dataclass(frozen=True)
class Cluster:
    """Where a search runs."""

    address: Annotated[str | None, optional("auto|HOST:PORT")] = None
    """a Ray cluster, auto for the one this machine belongs to; by default this machine alone."""
    workers: Annotated[int | None, optional("INT")] = None
    """trials at a time, by default as many as there are cores."""
    cores: int = 1
    """cores for each trial."""

    def for_hours(self, hours: float | None) -> Resources:
        return Resources(self.address, self.workers, self.cores, hours)


HERE = Cluster()
Clusters = Annotated[Cluster, together(), rare]
"""A command's parameter: the three flags."""


def resume(
    path: Path,
    given: dict[str, Any],
    task: str | None,
    trials: int | None,
    success: float | None,
    resources: Resources,
    form: Form,
    sweep: bool = False,
) -> int:
    for name, value in given.items():
        if value is not None:
            raise InputError(f"--resume goes on with what was searched: it takes no {name}")
    folder = SearchFolder(path)
    plan = folder.plan()
    named = tasks.named(plan.base.task, task, path, flag="--task " if sweep else "ham tune ")
    if known_task(named) != plan.base.task:
        raise InputError(f"the search in {path} is of {plan.base.task}, not of {named}")
    if plan.sweep != sweep:
        command = "ham sweep" if plan.sweep else "ham tune"
        raise InputError(
            f"{path} holds another kind of search; go on with: {command} --resume {shell_word(path)}"
        )
    if trials is not None:
        if trials < plan.trials:
            raise InputError(
                f"{path} was begun with {plan.trials} trials; there can be more of them, not {trials}"
            )
        plan = replace(plan, trials=trials)
    if success is not None:
        plan = replace(plan, success=success)
    return run(folder, plan, resources, form, new=False)


def run(folder: SearchFolder, plan: Plan, resources: Resources, form: Form, *, new: bool) -> int:
    """Run a search to its end, or until it is stopped, and report."""
    plan.check()
    folder.refuse_links(plan)
    if new:
        folder.refuse_if_taken()
        require_room(folder.path, folder=True)
    stopped, begun = False, not new
    if new or not all(outcome.ended for outcome in outcomes(folder, plan)):
        try:
            with engine.connected(resources):
                if new:
                    folder.begin(plan)
                    begun = True
                _follow(folder, plan, resources)
        except KeyboardInterrupt:
            if not begun:
                raise
            stopped = True
    folder.write_plan(plan)
    found = outcomes(folder, plan)
    report.write(folder, plan, found)
    _print(folder, plan, found, form)
    if not all(outcome.ended for outcome in found):
        # Code in a file is only run for who names the file, each time anew.
        task = shell_word(plan.base.task) if ".py:" in plan.base.task else ""
        command = (
            f"ham {'sweep' if plan.sweep else f'tune {task}'.strip()} --resume {shell_word(folder.path)}"
        )
        command += f" --task {task}" if plan.sweep and task else ""
        print(f"ham: not all trials ended; go on with: {command}", file=sys.stderr)
    if stopped:
        return 130
    return 0 if ranked(found) else 1


def _follow(folder: SearchFolder, plan: Plan, resources: Resources) -> None:
    """Run what is left of a search while it is shown."""
    with RunFolder(folder.path).locked():
        folder.write_plan(plan)
        with screen.shown(plan, outcomes(folder, plan), resources.hours) as board:
            engine.run(folder, plan, resources, board)


def _print(folder: SearchFolder, plan: Plan, found: Sequence[Outcome], form: Form) -> None:
    results = read_json(read_text(folder.path / report.RESULTS), report.RESULTS)
    shown = found if plan.sweep else ranked(found)[: report.MOST_SHOWN]
    columns = ("seed" if plan.sweep else "trial", *report.COLUMNS)
    table = Table(columns, map(report.cells, shown), right=(columns[0], *report.COLUMNS[1:]))
    form.show([table] if shown else [], results["trials"], results)
    if not form.for_a_person:
        return
    from ham.cli import terminal

    terminal.paragraph(report.in_words(plan, found))
    if not plan.sweep and ranked(found):
        print(f"train the best again with: ham train --recipe {shell_word(folder.path / report.BEST)}")
    print(f"report: {visible(folder.path / ('sweep.md' if plan.sweep else 'search.md'))}")


def known_task(task: str) -> str:
    """A task by the name it gives itself; one in a file by where that is, for workers run elsewhere."""
    if ".py:" not in task:
        return tasks.get(task).name
    path, _, name = task.rpartition(":")
    return f"{Path(path).absolute()}:{name}"


def given_settings(path: Path | None, flags: tuple[str, ...]) -> dict[str, Any]:
    from_file = spaces.from_file(read_text(path), str(path)) if path else {}
    return from_file | spaces.from_flags(flags)


def engine_for_all(backend: Backend) -> str:
    listen()
    if backend is not None:
        ops.set_backend(backend)
    return engine.on_this_machine(ops.backend())


def file_name(task: str) -> str:
    return re.sub(r"[^a-z0-9_+-]", "-", task.rpartition(":")[2].lower())
