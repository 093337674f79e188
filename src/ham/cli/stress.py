"""`ham stress`: a trained model on the hard cases of its task."""

from __future__ import annotations

from typing import Annotated

from tyro.conf import arg

from ham.cli import engine
from ham.cli.arguments import Backend, Threads, optional, require_sizes
from ham.cli.tables import TABLE, Forms, Table


def stress(
    model: Annotated[str, arg(metavar="NAME_OR_DIR")],
    /,
    *,
    task: Annotated[str | None, optional("TASK")] = None,
    leaves: Annotated[tuple[int, ...], arg(metavar="N [N ...]")] = (32, 128, 1024),
    examples: int = 100,
    seed: Annotated[int | None, optional("INT")] = None,
    form: Forms = TABLE,
    backend: Backend = None,
    threads: Threads = engine.THREADS,
) -> None:
    """Count the wrong answers of a trained model to hard questions, family by family.

    Families with a star may have been practised; the others are only for reporting.

    Args:
        model: a run's folder, a checkpoint file, or the name of a shipped model.
        task: another task than the one the model was trained on, or where its file is now.
        leaves: sizes of the memory, powers of two.
        examples: questions of each family for each size.
        seed: of the questions; by default a new one each time, which is printed.
    """
    from ham.runs import find
    from ham.use.stress import stress as stressed

    require_sizes("--leaves", leaves)
    engine.prepare(backend, threads)
    find(model)
    engine.announce()
    rows = stressed(model, task=task, leaves=leaves, examples=examples, seed=seed)
    about = {name: rows[0][name] for name in ("task", "seed")}
    columns = ("family", *(f"{size:,} leaves" for size in leaves))
    families = dict.fromkeys((row["family"], row["practised"]) for row in rows)
    cells = [
        (
            f"{name}{' *' if practised else ''}",
            *(str(row["wrong"]) for row in rows if row["family"] == name),
        )
        for name, practised in families
    ]
    form.show(
        [Table(columns, cells, right=columns[1:])],
        [{"model": model, **row} for row in rows],
        {"model": model, **about, "rows": rows},
        f"{about['task']}, test seed {about['seed']}: wrong of {examples} questions each",
    )
