"""Recipes: functions that return a full run, one for every published number.

The name of a recipe is its task's, for the paper's HAM model, or `task-model`: `sort`,
`sort-dham`, `sort-lstm`, `sort-lstm+a`.
"""

from __future__ import annotations

from ham.config import Run
from ham.errors import InputError
from ham.recipes import hard

ALL = {
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


def names() -> list[str]:
    return list(ALL)


def get(name: str) -> Run:
    """The run of that name."""
    if name not in ALL:
        raise InputError(f"no recipe is named {name!r}; there are {', '.join(ALL)}")
    return ALL[name]()
