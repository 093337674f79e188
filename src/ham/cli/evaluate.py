"""`ham evaluate`: the error of a trained model, by the paper's protocol or as asked for."""

from __future__ import annotations

import json as json_text
import re
import secrets
import time
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import arg

from ham.cli import engine
from ham.cli.arguments import Backend, optional
from ham.config import Run
from ham.core.errors import InputError

if TYPE_CHECKING:
    from ham.runs import Trained


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
    from ham import runs

    engine.prepare(backend, threads)
    trained = runs.load(model, task)
    seed = chosen_seed(seed)
    asked = [(size, _range(lengths)) for size in leaves or _paper_sizes(trained.run)]
    engine.announce()
    rows = [row(trained, size, span, examples, seed) for size, span in asked]
    if json:
        print(
            json_text.dumps({"model": model, "task": trained.task.name, "seed": seed, "rows": rows}, indent=2)
        )
    else:
        print(f"{trained.task.name}, test seed {seed}")
        table(rows)


def chosen_seed(seed: int | None) -> int:
    """The seed that was given, or a new one."""
    if seed is not None and not 0 <= seed < 1 << 63:
        raise InputError(f"seed must lie in 0 … 2^63 - 1, got {seed}")
    return secrets.randbelow(1 << 32) if seed is None else seed


def both_protocols(trained: Trained, examples: int, seed: int) -> list[dict[str, Any]]:
    """Rows of the paper's test and generalisation."""
    return [row(trained, size, None, examples, seed) for size in _paper_sizes(trained.run)]


def _paper_sizes(run: Run) -> tuple[int, int]:
    return run.data.leaves, 4 * run.data.leaves


def row(
    trained: Trained, leaves: int, lengths: tuple[int, int] | None, examples: int, seed: int
) -> dict[str, Any]:
    """One measurement, with the keys that `--json` documents."""
    from ham.cli import terminal
    from ham.train.evaluate import evaluate_at, lengths_for

    low, high = lengths or lengths_for(leaves, trained.run.data.leaves)
    part = trained.task.outputs.part
    started = time.monotonic()
    with terminal.counting(f"n = {leaves}", examples) as progress:
        score = evaluate_at(
            trained,
            leaves,
            lengths=(low, high),
            examples=examples,
            seed=seed,
            progress=progress,
        )
    return {
        "leaves": leaves,
        "lengths": [high if trained.task.online else low, high],
        "examples": score.examples,
        "wrong": score.wrong,
        "error": score.error,
        "error_interval": list(score.interval),
        f"{part}s": score.parts,
        f"wrong_{part}s": score.wrong_parts,
        f"{part}_error": score.part_error,
        "loss": score.loss,
        "seconds": round(time.monotonic() - started, 3),
    }


def table(rows: list[dict[str, Any]]) -> None:
    """Print measurements for a person."""
    from ham.cli import terminal

    part = "bit" if "bits" in rows[0] else "symbol"
    cells = [
        (
            f"{row['leaves']:,}",
            ":".join(str(bound) for bound in dict.fromkeys(row["lengths"])),
            f"{row['examples']:,}",
            f"{row['wrong']:,}",
            terminal.percent(row["error"]),
            " – ".join(map(terminal.percent, row["error_interval"])),
            f"{row[f'{part}_error']:.4f}%",
            f"{row['seconds']:.1f}",
        )
        for row in rows
    ]
    columns = ("leaves", "lengths", "examples", "wrong", "error", "95% interval", f"{part} error", "seconds")
    terminal.table(columns, cells, right=columns)


def _range(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    found = re.fullmatch(r"(\d{1,9}):(\d{1,9})", text)
    if not found:
        raise InputError(f"lengths must be A:B, such as 65:128, got {text!r}")
    return int(found[1]), int(found[2])
