"""`ham stress`: a trained model on the hard cases of its task."""

from __future__ import annotations

import json as json_text
from typing import Annotated

from tyro.conf import arg

from ham.cli import engine
from ham.cli.arguments import Backend, optional
from ham.cli.evaluate import chosen_seed
from ham.core.errors import InputError


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
    from ham import runs
    from ham.cli import terminal
    from ham.core.seeds import Purpose, generator
    from ham.use.stress import stress as stressed

    engine.prepare(backend, threads)
    trained = runs.load(model, task)
    seed = chosen_seed(seed)
    if seed < 0:
        raise InputError(f"seed must not be negative, got {seed}")
    if not trained.task.hard_cases():
        raise InputError(f"{trained.task.name} names no hard cases (Task.hard_cases)")
    engine.announce()
    by_size = [
        stressed(
            trained.model,
            trained.task,
            leaves=size,
            examples=examples,
            rng=generator(Purpose.TEST, seed, size),
        )
        for size in leaves
    ]
    if json:
        rows = [
            {
                "family": one.case.name,
                "practised": one.case.practised,
                "leaves": one.leaves,
                "examples": one.examples,
                "wrong": one.wrong,
            }
            for each in by_size
            for one in each
        ]
        print(
            json_text.dumps({"model": model, "task": trained.task.name, "seed": seed, "rows": rows}, indent=2)
        )
        return
    print(f"{trained.task.name}, test seed {seed}: wrong of {examples} questions each")
    columns = ("family", *(f"{size:,} leaves" for size in leaves))
    cells = [
        (
            f"{family[0].case.name}{' *' if family[0].case.practised else ''}",
            *(str(one.wrong) for one in family),
        )
        for family in zip(*by_size, strict=True)
    ]
    terminal.table(columns, cells, right=columns[1:])
