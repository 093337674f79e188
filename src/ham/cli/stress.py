"""`ham stress`: a trained model on the hard cases of its task."""

from __future__ import annotations

import json as json_text
from typing import Annotated

from tyro.conf import arg

from ham.cli import engine
from ham.cli.arguments import Backend, optional


def stress(
    model: Annotated[str, arg(metavar="NAME_OR_DIR")],
    /,
    *,
    task: Annotated[str | None, optional("TASK")] = None,
    leaves: Annotated[tuple[int, ...], optional("N [N ...]")] = (32, 128, 1024),
    examples: int = 100,
    seed: Annotated[int | None, optional("INT")] = None,
    json: bool = False,
    backend: Backend = None,
    threads: int = engine.THREADS,
) -> None:
    """Count the wrong answers of a trained model to hard questions, family by family.

    Families with a star may have been practised; the others are only for reporting.

    Args:
        model: a run's folder, a checkpoint file, or the name of a shipped model.
        task: another task than the one the model was trained on, or where its file is now.
        leaves: sizes of the memory, powers of two.
        examples: questions of each family for each size.
        seed: of the questions; by default a new one each time, which is printed.
        json: print JSON instead of a table.
        backend: engine to run on; by default $HAM_BACKEND, or auto.
        threads: threads to run on.
    """
    from ham.cli import terminal
    from ham.use.stress import stress as stressed

    engine.prepare(backend, threads)
    engine.announce()
    rows = stressed(model, task=task, leaves=leaves, examples=examples, seed=seed)
    about = {name: rows[0][name] for name in ("task", "seed")}
    if json:
        print(json_text.dumps({"model": model, **about, "rows": rows}, indent=2))
        return
    print(f"{about['task']}, test seed {about['seed']}: wrong of {examples} questions each")
    columns = ("family", *(f"{size:,} leaves" for size in leaves))
    families = dict.fromkeys((row["family"], row["practised"]) for row in rows)
    cells = [
        (
            f"{name}{' *' if practised else ''}",
            *(str(row["wrong"]) for row in rows if row["family"] == name),
        )
        for name, practised in families
    ]
    terminal.table(columns, cells, right=columns[1:])
