"""The paper's tasks and data structures, and the way to add one's own."""

from ham.tasks.base import (
    Batch,
    Practice,
    Task,
    all_in_range,
    bits_of,
    ended,
    in_range,
    number_of,
    pair_of,
    pairs_of,
    within,
)
from ham.tasks.registry import get, named, names, register

__all__ = [
    "Batch",
    "Practice",
    "Task",
    "all_in_range",
    "bits_of",
    "ended",
    "get",
    "in_range",
    "named",
    "names",
    "number_of",
    "pair_of",
    "pairs_of",
    "register",
    "within",
]
