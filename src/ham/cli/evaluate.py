"""`ham evaluate`: the error of a trained model, by the paper's protocol or as asked for."""

from __future__ import annotations

import json as json_text
import re
from typing import Annotated, Any

from tyro.conf import arg

from ham.cli import engine
from ham.cli.arguments import Backend, optional
from ham.core.errors import InputError


def evaluate(
    model: Annotated[str, arg(metavar="NAME_OR_DIR")],
    /,
    *,
    task: Annotated[str | None, optional("TASK")] = None,
    leaves: Annotated[tuple[int, ...], optional("N [N ...]")] = (),
    lengths: Annotated[str | None, optional("A:B")] = None,
    examples: int = 2500,
    seed: Annotated[int | None, optional("INT")] = None,
    json: bool = False,
    backend: Backend = None,
    threads: int = engine.THREADS,
) -> None:
    """Measure the error of a trained model on fresh examples, greedily.

    Without --leaves: the paper's test (n leaves as in training, lengths 1 to n) and its
    generalisation (4n leaves, lengths 2n+1 to 4n).

    Args:
        model: a run's folder, a checkpoint file, or the name of a shipped model.
        task: another task than the one the model was trained on, or where its file is now.
        leaves: sizes of the memory, powers of two.
        lengths: rows of the questions, from A to B; by default 1:n up to the trained size, the
            upper half of a larger memory.
        examples: questions for each size.
        seed: of the questions; by default a new one each time, which is printed.
        json: print JSON instead of a table.
        backend: engine to run on; by default $HAM_BACKEND, or auto.
        threads: threads to run on.
    """
    from ham.use.evaluate import evaluate as measured

    engine.prepare(backend, threads)
    engine.announce()
    rows = measured(model, task=task, leaves=leaves, lengths=_range(lengths), examples=examples, seed=seed)
    if json:
        about = {name: rows[0][name] for name in ("task", "seed")}
        print(json_text.dumps({"model": model, **about, "rows": rows}, indent=2))
    else:
        print(f"{rows[0]['task']}, test seed {rows[0]['seed']}")
        table(rows)


def table(rows: list[dict[str, Any]]) -> None:
    """Print measurements for a person."""
    from ham.cli import terminal

    cells = [
        (
            f"{row['leaves']:,}",
            ":".join(str(bound) for bound in dict.fromkeys(row["lengths"])),
            f"{row['examples']:,}",
            f"{row['wrong']:,}",
            terminal.percent(row["error"]),
            " – ".join(map(terminal.percent, row["error_interval"])),
            f"{row['bit_error']:.4f}%",
            f"{row['seconds']:.1f}",
        )
        for row in rows
    ]
    columns = ("leaves", "lengths", "examples", "wrong", "error", "95% interval", "bit error", "seconds")
    terminal.table(columns, cells, right=columns)


def _range(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    found = re.fullmatch(r"(\d{1,9}):(\d{1,9})", text)
    if not found:
        raise InputError(f"lengths must be A:B, such as 65:128, got {text!r}")
    return int(found[1]), int(found[2])
