"""`ham reproduce`: the paper's tables and its figure from the shipped models, or from models trained anew."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import arg

from ham.cli import engine
from ham.cli.arguments import Backend, optional
from ham.cli.tables import TABLE, Form, Forms, Table
from ham.core.errors import InputError
from ham.core.files import require_no_link, require_room
from ham.core.install import install
from ham.core.text import shell_word, visible
from ham.models.kinds import columns

if TYPE_CHECKING:
    from ham.reproduce import tables
    from ham.reproduce.complexity import Cost

COLUMNS = tuple(dict.fromkeys(column.title for table in (1, 2) for column in columns(table)))
if TYPE_CHECKING:
    Column = str
else:
    Column = Literal[COLUMNS]

MOST_SEEDS = 1000
HARD_EXAMPLES = 20
"""Of each family of hard cases, in each size of memory."""
TRAINING = "training"
"""Folder of the runs of `--train`, in that of the results."""


def reproduce(
    *,
    table: Annotated[Literal[1, 2] | None, optional("{1,2}")] = None,
    task: Annotated[str | None, optional("TASK")] = None,
    model: Annotated[Column | None, optional(f"{{{','.join(COLUMNS)}}}")] = None,
    figure: bool = False,
    train: bool = False,
    seeds: int = 1,
    document: Annotated[Path | None, optional("FILE")] = None,
    examples: int = 2500,
    seed: Annotated[int | None, optional("INT")] = None,
    out: Annotated[Path, arg(metavar="DIR")] = Path("reproduction"),
    form: Forms = TABLE,
    backend: Backend = None,
    threads: Annotated[int | None, optional("INT")] = None,
) -> None:
    """Evaluate the shipped models on fresh examples and print the paper's tables, ours beside its own.

    Writes tables.md, tables.tex and results.json, and index.html with plots, the analysis figure and
    the live page.

    Args:
        table: only Table 1 (sequences) or Table 2 (data structures).
        task: only this task.
        model: only this column.
        figure: only the analysis figure (Sort4), as PNG and SVG.
        train: first train all the models behind these cells again from their recipes, and use those.
            Stopped, it goes on where it stood.
        seeds: with --train, runs of each recipe; the one that validates best is used.
        document: write all results into this Markdown file too, with the errors up to 32 times longer inputs.
        examples: questions for each cell; the paper's number by default.
        seed: of the questions; by default a new one each time, which is printed.
        out: folder for the files.
        threads: threads to run on, or with --train runs side by side; by default one for each core.
    """
    from ham.reproduce import tables
    from ham.train.progress import counting
    from ham.use.evaluate import chosen_seed

    require_room(out, folder=True)
    if document is not None:
        require_room(document)
    cores = (os.cpu_count() or 1) if threads is None else threads
    engine.prepare(backend, cores)
    if figure:
        _figure(out, form)
        return
    if document is not None and train:
        raise InputError("--document is about the shipped models, which --train does not use")
    pairs = tables.wanted(table, task.replace("-", "_") if task else None, model)
    models = _trained(pairs, seeds, out / TRAINING, cores) if train else tables.shipped_models()
    seed = chosen_seed(seed)
    cells, missing = _cells(pairs, models, examples, seed)
    hard = _hard_cases(pairs, models, min(examples, HARD_EXAMPLES), seed)
    costs = _complexity() if table != 2 and task is None and model is None else []
    found = tables.Found(cells, hard, costs, seed)
    note = (
        f"Errors in percent of whole sequences, with their 95% interval, on {examples:,} fresh examples a cell "
        f"(seed {seed})."
    )
    texts = tables.texts(found)
    form.show(
        [Table((title, *columns), rows) for title, columns, rows in texts],
        [asdict(cell) for cell in cells],
        found.to_json(),
        f"{note}\n",
    )
    say = print if form.for_a_person else partial(print, file=sys.stderr)
    if missing:
        say(f"Not shipped yet: {', '.join(sorted(missing))}.")
    _write(out, found, models, note, say)
    if document is not None:
        from ham.reproduce.document import write_document

        with counting("lengths", len(pairs) + 2 * len(hard)) as count:
            write_document(document, pairs, texts, note, seed, count)
        say(f"All results: {visible(document)}")
        say(f"The README's tables: python -m ham.reproduce.pages {shell_word(document)} README.md")


def _cells(
    pairs: Sequence[tuple[str, str]], models: Mapping[str, Path], examples: int, seed: int
) -> tuple[list[tables.Cell], set[str]]:
    """The cells of the tables, and the models that are not there."""
    from ham.reproduce import tables
    from ham.train.progress import counting

    cells: list[tables.Cell] = []
    missing: set[str] = set()
    with counting("cells", len(pairs) * len(tables.SPLITS)) as count:
        for name, _, cell in tables.cells(pairs, models, examples=examples, seed=seed):
            if cell is None:
                missing.add(name)
            else:
                cells.append(cell)
            count(1)
    if not cells:
        raise InputError(f"no model is shipped for these cells: {', '.join(sorted(missing))}")
    return cells, missing


def _hard_cases(
    pairs: Sequence[tuple[str, str]], models: Mapping[str, Path], examples: int, seed: int
) -> tables.Hard:
    from ham import recipes
    from ham.reproduce import tables
    from ham.train.progress import counting

    hard: tables.Hard = {}
    with counting("hard cases", sum(tables.recipe_of(*pair) in recipes.HARD for pair in pairs)) as count:
        for name, families in tables.hard_cases(pairs, models, examples=examples, seed=seed):
            hard[name] = families
            count(1)
    return hard


def _write(
    out: Path, found: tables.Found, models: Mapping[str, Path], note: str, say: Callable[[str], None]
) -> None:
    """The tables as files and, where there is matplotlib, a page of plots."""
    from ham.reproduce import tables
    from ham.train.progress import counting

    tables.write(out, found)
    say(f"\nWritten to {visible(out)}: tables.md, tables.tex, results.json.")
    if importlib.util.find_spec("matplotlib") is None:
        say(f"Plots and the page need matplotlib: {install('view')}")
        return
    with counting("sizes", len(found.cells) // len(tables.SPLITS)) as count:
        report = tables.write_report(out, found, models, note, count)
    say(f"To look at: {visible(report)}")


def _complexity() -> list[Cost]:
    import torch

    from ham.reproduce import complexity
    from ham.train.progress import counting

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with counting("complexity", len(complexity.PAPER)) as count:
        costs = []
        for cost in complexity.measured():
            costs.append(cost)
            count(1)
    torch.set_num_threads(threads)
    return costs


def _figure(out: Path, form: Form) -> None:
    from ham.cli import terminal
    from ham.reproduce import tables

    out.mkdir(parents=True, exist_ok=True)
    figure = tables.analysis(out)
    verdicts = figure.finding.by_node, figure.finding.sign_alone, figure.finding.guessing
    columns = ("node", "side told by the coordinate", "by its sign alone", "by guessing")
    shares = [(node, *(by[node] for by in verdicts)) for node in verdicts[0]]
    rows = [(str(node), *(terminal.percent(100 * share) for share in its)) for node, *its in shares]
    records = [dict(zip(columns, row, strict=True)) for row in shares]
    form.show([Table(columns, rows, right=columns)], records, note=f"{figure.caption}\n")
    said = f"Written to {visible(out)}: analysis.png, analysis.svg."
    print(f"\n{said}" if form.for_a_person else said, file=None if form.for_a_person else sys.stderr)


def _trained(pairs: Sequence[tuple[str, str]], seeds: int, folder: Path, workers: int) -> dict[str, Path]:
    """The models behind the cells, trained here; an estimate of the time comes first."""
    from ham.cli import terminal
    from ham.reproduce import acceptance, retrain
    from ham.reproduce.tables import recipe_of
    from ham.runs import RunFolder
    from ham.train.progress import counting

    if not 1 <= seeds <= MOST_SEEDS:
        raise InputError(f"seeds must lie in 1 … {MOST_SEEDS:,}, got {seeds:,}")
    require_no_link(folder)
    jobs = retrain.jobs([recipe_of(model, task) for model, task in pairs], range(seeds), folder)
    todo = [job for job in jobs if not job.done]
    if todo:
        seconds, unknown = retrain.estimate(todo, workers)
        there = f"{len(todo)} of {len(jobs)} runs to train in {visible(folder)}"
        print(f"{there}, {workers} at a time: about {_time(seconds)}.")
        if unknown:
            print(f"Not counted, for want of a log: {', '.join(unknown)}.")
        with counting("runs", len(todo)) as count:
            for job, took in retrain.train_all(todo, workers):
                kept = RunFolder(job.path).kept()
                error = terminal.percent(kept["error"])
                said = f"validation error {error} up to length {kept['longest']}, {_time(took)}"
                print(f"{job.name}, seed {job.run.seed}: {said}", flush=True)
                count(1)
    by_name: dict[str, list[Path]] = {}
    for job in jobs:
        by_name.setdefault(job.name, []).append(job.path)
    return {name: acceptance.best_of(paths) for name, paths in by_name.items()}


def _time(seconds: float) -> str:
    """>>> _time(7500.0)
    '2 h 5 min'
    """
    minutes = max(round(seconds / 60), 1)
    return re.sub(r"^0 h ", "", f"{minutes // 60} h {minutes % 60} min")
