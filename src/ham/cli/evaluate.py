"""`ham evaluate`: the error of trained models, by the paper's protocol or as asked for."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any

from ham.cli import engine
from ham.cli.arguments import Backend, Threads, optional, require_sizes
from ham.cli.tables import TABLE, Forms, Table
from ham.core.errors import InputError


def evaluate(
    models: Annotated[tuple[str, ...], optional("NAME_OR_DIR ...")] = (),
    /,
    *,
    task: Annotated[str | None, optional("TASK")] = None,
    leaves: Annotated[tuple[int, ...] | None, optional("N [N ...]")] = None,
    lengths: Annotated[str | None, optional("A:B")] = None,
    examples: int = 2500,
    seed: Annotated[int | None, optional("INT")] = None,
    form: Forms = TABLE,
    backend: Backend = None,
    threads: Threads = engine.THREADS,
) -> None:
    """Measure the error of trained models on fresh examples, greedily.

    Without --leaves: the paper's test (n leaves as in training, lengths 1 to n) and its
    generalisation (4n leaves, lengths 2n+1 to 4n).

    Args:
        models: runs' folders, checkpoint files, or names of shipped models; several are compared on the
            same questions.
        task: another task than the one the model was trained on, or where its file is now.
        leaves: sizes of the memory, powers of two.
        lengths: rows of the questions, from A to B; by default 1:n up to the trained size, the
            upper half of a larger memory.
        examples: questions for each size.
        seed: of the questions; by default a new one each time, which is printed.
    """
    from ham.runs import find
    from ham.use.evaluate import chosen_seed
    from ham.use.evaluate import evaluate as measured

    if not models:
        raise InputError("give at least one NAME_OR_DIR, as in: ham evaluate sort; see ham evaluate --help")
    require_sizes("--leaves", leaves)
    engine.prepare(backend, threads)
    asked: Any = {
        "leaves": leaves or (),
        "lengths": _range(lengths),
        "examples": examples,
        "seed": chosen_seed(seed),
    }
    for name in models:
        find(name)  # a name that is nobody's is told before an engine is built for it
    engine.announce()
    rows = [{"model": name, **row} for name in models for row in measured(name, task=task, **asked)]
    shared = {key: rows[0][key] for key in ("model", "task", "seed") if len({row[key] for row in rows}) == 1}
    about = f"{shared['task']}, " if "task" in shared else ""
    note = f"{about}test seed {asked['seed']}" + (f", {examples:,} examples each" if len(models) > 1 else "")
    form.show([table(rows)], rows, {**shared, "rows": [_without(row, shared) for row in rows]}, note)


def _without(row: dict[str, Any], shared: dict[str, Any]) -> dict[str, Any]:
    """A row that does not repeat which model it is of, where there is but one."""
    return {key: value for key, value in row.items() if key != "model" or key not in shared}


def table(rows: Sequence[dict[str, Any]]) -> Table:
    """Measurements for a person: of one model, or of several beside each other."""
    from ham.cli import terminal

    several = len({row.get("model") for row in rows}) > 1
    parts = [part for part in ("bit", "symbol") if any(f"{part}_error" in row for row in rows)]
    cells = [
        {
            "model": row.get("model", ""),
            "leaves": f"{row['leaves']:,}",
            "lengths": ":".join(str(bound) for bound in dict.fromkeys(row["lengths"])),
            "examples": f"{row['examples']:,}",
            "wrong": f"{row['wrong']:,}",
            "error": terminal.percent(row["error"]),
            "95% interval": " – ".join(map(terminal.percent, row["error_interval"])),
            f"{' or '.join(parts)} error": f"{row.get('bit_error', row.get('symbol_error')):.4f}%",
            "seconds": f"{row['seconds']:.1f}",
        }
        for row in rows
    ]
    left_out = {"examples", "seconds"} if several else {"model"}
    columns = [name for name in cells[0] if name not in left_out]
    return Table(columns, [[row[name] for name in columns] for row in cells], right=columns[several:])


def _range(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    found = re.fullmatch(r"(\d{1,9}):(\d{1,9})", text)
    if not found:
        raise InputError(f"lengths must be A:B, such as 65:128, got {text!r}")
    return int(found[1]), int(found[2])
