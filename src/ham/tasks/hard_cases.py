"""Hard cases: families of questions that random ones hardly ever are.

A learned algorithm may be right on every random question and wrong whenever all keys are equal. Each task names its
families; about half of them may be practised, the others are only for reporting.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy import ndarray

from ham.core.errors import InputError
from ham.tasks.base import Batch, HardCase, Task


def practised_cases(task: Task) -> list[HardCase]:
    """The families that training may use; refused if there are none."""
    cases = [case for case in task.hard_cases() if case.practised]
    if not cases:
        raise InputError(f"{task.name} names no hard cases that may be practised (Task.hard_cases)")
    return cases


def draw_hard(rng: np.random.Generator, task: Task, batch: int, n: int) -> tuple[Batch, int]:
    """So many questions that may be practised, of at most n rows, and the leaves they are to be answered with."""
    cases = practised_cases(task)
    # A data structure's operations are its rows, two for every leaf.
    leaves = max(n // 2, 1) if task.online else n
    picked = rng.integers(len(cases), size=batch)
    return batch_of(task, [cases[which].draw(rng, leaves) for which in picked]), leaves


def batch_of(task: Task, questions: Sequence[Any]) -> Batch:
    """Questions with their targets, padded to one shape."""
    rows = [task.encode(question) for question in questions]
    answers = [task.targets(question) for question in questions]
    lengths = np.array([len(these) for these in rows], np.int64)
    symbols = max(len(counted) for _, counted in answers)
    inputs = np.zeros((len(rows), lengths.max(), task.features), np.float32)
    targets = np.zeros((len(rows), symbols, task.outputs.width), np.float32)
    counted = np.zeros((len(rows), symbols), bool)
    for place, (these, (said, counts)) in enumerate(zip(rows, answers, strict=True)):
        inputs[place, : len(these)] = these
        targets[place, : len(said)] = said
        counted[place, : len(counts)] = counts
    return Batch(inputs, lengths, targets, counted)


def long(rng: np.random.Generator, most: int) -> int:
    """A length in the upper half of what fits."""
    return int(rng.integers(most // 2 + 1, most, endpoint=True))


def keys_all_equal(rng: np.random.Generator, count: int, bits: int) -> ndarray:
    return np.full(count, rng.integers(1 << bits))


def keys_of_two(rng: np.random.Generator, count: int, bits: int) -> ndarray:
    """Two different keys, each at random places."""
    return rng.choice(rng.choice(1 << bits, 2, replace=False), count)


def keys_in_turn(rng: np.random.Generator, count: int, bits: int) -> ndarray:
    """Two different keys, one after the other."""
    return np.resize(rng.choice(1 << bits, 2, replace=False), count)


def keys_of_neighbours(rng: np.random.Generator, count: int, bits: int) -> ndarray:
    """A key and the next one, which differs from it in the last bit, the last two, … or in all, equally often."""
    last = int(rng.integers(bits))
    upper = (2 * int(rng.integers(1 << bits - 1 - last)) + 1) << last
    return rng.choice([upper - 1, upper], count)


def keys_in_runs(rng: np.random.Generator, count: int, bits: int) -> ndarray:
    """Each key several times in a row, and again later."""
    runs = rng.integers(1 << bits, size=count)
    return np.repeat(runs, rng.integers(2, max(count // 4, 3), size=count))[:count]


def keys_of_extremes(rng: np.random.Generator, count: int, bits: int) -> ndarray:
    """The smallest and the largest key there is."""
    return rng.choice([0, (1 << bits) - 1], count)


def keys_of_any(rng: np.random.Generator, count: int, bits: int) -> ndarray:
    return rng.integers(1 << bits, size=count)
