"""The paper's tasks and data structures, and the way to add one's own."""

from ham.tasks.base import (
    Batch,
    HardCase,
    Practice,
    Task,
    all_in_range,
    ended,
    in_range,
    pair_of,
    pairs_of,
    within,
)
from ham.tasks.codecs import Bits, Codec, OneHot, Real, bits_of, number_of
from ham.tasks.registry import get, named, names, register

__all__ = [
    "Batch",
    "Bits",
    "Codec",
    "HardCase",
    "OneHot",
    "Practice",
    "Real",
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
