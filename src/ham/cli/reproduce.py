"""`ham reproduce`: the paper's tables from the shipped models."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import arg

from ham.cli import engine
from ham.cli.arguments import Backend, optional
from ham.errors import InputError


def reproduce(
    *,
    table: Annotated[Literal[1, 2] | None, optional("{1,2}")] = None,
    task: Annotated[str | None, optional("TASK")] = None,
    model: Annotated[
        Literal["lstm", "lstm+a", "lstm+ham", "raw-ham", "dham"] | None,
        arg(metavar="{lstm,lstm+a,lstm+ham,raw-ham,dham}", help_behavior_hint=""),
    ] = None,
    examples: int = 2500,
    seed: Annotated[int | None, optional("INT")] = None,
    out: Path = Path("reproduction"),
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
        examples: questions for each cell; the paper's number by default.
        seed: of the questions; by default a new one each time, which is printed.
        out: folder for the files.
        backend: engine to run on; by default $HAM_BACKEND, or auto.
        threads: threads to run on; by default one for each core.
    """
    import os

    from ham import reproduce as tables
    from ham import show
    from ham.cli.evaluate import fresh_seed

    pairs = tables.wanted(table, task.replace("-", "_") if task else None, model)
    engine.prepare(backend, threads or os.cpu_count() or 1)
    seed = fresh_seed() if seed is None else seed
    found: list[tables.Cell] = []
    missing: set[str] = set()
    with show.counting("cells", len(pairs) * len(tables.SPLITS)) as count:
        for name, _, cell in tables.cells(pairs, examples=examples, seed=seed):
            if cell is None:
                missing.add(name)
            else:
                found.append(cell)
            count(1)
    if not found:
        raise InputError(f"no model is shipped for these cells: {', '.join(sorted(missing))}")
    note = (
        f"Errors in percent of whole sequences, with their 95% interval, on {examples} fresh examples a cell "
        f"(seed {seed})."
    )
    print(f"{note}\n")
    texts = tables.texts(found)
    for title, columns, rows in texts:
        show.table((title, *columns), rows)
        print()
    if missing:
        print(f"Not shipped yet: {', '.join(sorted(missing))}.")
    tables.write(out, found, seed)
    print(f"Written to {out}: tables.md, tables.tex, results.json.")
    if importlib.util.find_spec("matplotlib") is None:
        print("Plots and the page need matplotlib: pip install 'ham-memory[view]'.")
    else:
        print(f"To look at: {tables.write_report(out, found, texts, note)}")
