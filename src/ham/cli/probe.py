"""`ham probe`: where a trained model goes wrong, and how sure it was."""

from __future__ import annotations

from typing import Annotated, Any

from tyro.conf import arg

from ham.cli import engine
from ham.cli.arguments import Backend, Threads, optional
from ham.cli.tables import TABLE, Forms, Table

COLUMNS = {
    "rows": "rows",
    "symbol": "symbol",
    "of": "of",
    "belongs": "belongs",
    "leaf": "leaf",
    "turn": "turn",
    "height": "height",
    "turn_before": "before",
    "output": "output",
}
"""What a person is shown of a wrong sequence, and under which heading."""


def probe(
    model: Annotated[str, arg(metavar="NAME_OR_DIR")],
    /,
    *,
    task: Annotated[str | None, optional("TASK")] = None,
    leaves: int = 1024,
    examples: int = 500,
    show: int = 20,
    seed: Annotated[int | None, optional("INT")] = None,
    form: Forms = TABLE,
    backend: Backend = None,
    threads: Threads = engine.THREADS,
) -> None:
    """Say where a trained model goes wrong on long inputs, and how sure it was.

    Of each wrong sequence its first wrong symbol: where in the answer it belongs, the leaf it was read from, how sure
    the least sure turn on the way there was and at which height of the tree, how sure the least sure turn at any
    symbol before, and how sure the symbol itself.

    Args:
        model: a run's folder, a checkpoint file, or the name of a shipped model.
        task: another task than the one the model was trained on, or where its file is now.
        leaves: size of the memory, a power of two of at least 2.
        examples: questions, and as many that are no longer than the trained ones.
        show: lines of the table, at most; --json and --csv have all.
        seed: of the questions; by default a new one each time, which is printed.
    """
    from ham.runs import find
    from ham.use.probe import probe as probed

    engine.prepare(backend, threads)
    find(model)
    engine.announce()
    found = probed(model, task=task, leaves=leaves, examples=examples, seed=seed)
    shown = found.rows[: max(show, 0)]
    cells = [tuple(_text(row[name]) for name in COLUMNS) for row in shown]
    headings = tuple(COLUMNS.values())
    more = f" (the first {len(shown)})" if len(shown) < len(found.rows) else ""
    form.show(
        [Table(headings, cells, right=headings)] if cells else [],
        [{"model": model, **row} for row in found.rows],
        {"model": model, **found.to_json()},
        f"{found.heading}{more}",
    )


def _text(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.4f}" if isinstance(value, float) else str(value)
