"""Recipes: functions that return a full run, one for every published number.

The name of a recipe is its task's, for the paper's HAM model, or `task-model`: `sort`,
`sort-dham`, `sort-lstm`, `sort-lstm+a`. `sort-paper` trains HAM as the paper does, to the letter.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from ham import tasks
from ham.config import Architecture, Run
from ham.core.errors import InputError
from ham.core.files import read_text
from ham.core.text import meant
from ham.models.kinds import KINDS, PAPER, kind_for
from ham.recipes import baselines, hard, paper, soft

HARD: dict[str, Callable[[], Run]] = {
    "reverse": hard.reverse,
    "search": hard.search,
    "merge": hard.merge,
    "sort": hard.sort,
    "add": hard.add,
    "sort4": hard.sort4,
    "stack": hard.stack,
    "queue": hard.queue,
    "priority_queue": hard.priority_queue,
}
SEQUENCES = ("reverse", "search", "merge", "sort", "add")
"""The tasks of Table 1, which has a column for each baseline."""
STRUCTURES = ("stack", "queue", "priority_queue")
"""The tasks of Table 2."""

TABLES = {1: SEQUENCES, 2: STRUCTURES}

BY_SUFFIX: dict[str, Callable[[str], Run]] = {
    "-lstm": baselines.encoder_decoder,
    "-lstm+a": baselines.attentive,
    "-dham": lambda task: soft.soft(HARD[task]()),
}
"""How the other kinds of models are trained on a task."""


def _to_the_letter(task: str) -> Run:
    return paper.to_the_letter(HARD[task]())


ALL: dict[str, Callable[[], Run]] = {
    **HARD,
    **{
        f"{task}{kind.suffix}": partial(BY_SUFFIX[kind.suffix], task)
        for kind in KINDS.values()
        if kind.suffix
        for table in kind.tables
        for task in TABLES[table]
    },
    **{f"{task}{PAPER}": partial(_to_the_letter, task) for task in (*SEQUENCES, *STRUCTURES)},
}


def names() -> list[str]:
    """The names of all recipes."""
    return list(ALL)


def get(name: str) -> Run:
    """The run of that name."""
    if name not in ALL:
        raise InputError(f"no recipe is named {name!r}{meant(name, ALL)}; there are {', '.join(ALL)}")
    return ALL[name]()


def read(name: str) -> Run:
    """The run of that name, or the one in a file: a run's config.json, a search's best.json."""
    if name in ALL:
        return get(name)
    if not Path(name).is_file():
        there = meant(name, ALL) or f" ({', '.join(ALL)})"
        raise InputError(f"{name} is neither a recipe nor a file{there}")
    return Run.from_json(read_text(Path(name)), name)


def for_task(name: str) -> Run:
    """The recipe of a task, or the general defaults for one that has none."""
    # A task in a file stays where it is; others go by the name they give themselves.
    own = name if ".py:" in name else tasks.get(name).name
    if own in ALL:
        return get(own)
    return Run(own, Architecture(kind=kind_for(tasks.get(own).online).name))


__all__ = ["for_task", "get", "names", "read"]
