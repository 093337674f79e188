"""Merge: the values of two sorted sequences in the order of their priorities.

Priorities are k/300 for different k in 1..300. More than 300 rows cannot have that, so a longer
example draws from the next multiple of 300 that has enough: k/600 up to 600 rows, and so on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from ham.core.errors import InputError
from ham.tasks.base import Batch, HardCase, Practice, Task, all_in_range, ended, pair_of, pairs_of, within
from ham.tasks.codecs import bits_of, number_of
from ham.tasks.hard_cases import long
from ham.tasks.registry import register
from ham.tasks.text import pair, real, words

VALUE_BITS = 5
GRID = 300
CLOSEST = 256
"""How many times closer to each other priorities may be practised: on a grid of 76,800, finer than any below 76,501
rows."""


@dataclass(frozen=True)
class MergePractice(Practice):
    """What Merge is trained on."""

    closer: float = 0.0
    """Share of the questions whose priorities lie closer together, by any factor up to 256, around any place, a third
    of them at the ends of the range: short inputs hardly ever have neighbours, and hardly ever there, long ones do."""


@register
class Merge(Task):
    """Two sorted sequences of (priority, value).

    >>> Merge().solve(([(0.1, 5), (0.9, 3)], [(0.2, 7)]))
    [5, 7, 3]
    """

    name = "merge"
    summary = "two sequences of 5-bit values sorted by real priorities, merged"
    features = 1 + VALUE_BITS
    answer_bits = VALUE_BITS
    example = "0.1:5 0.9:3 | 0.2:7"
    options = MergePractice

    def sample(self, rng, batch, n, lengths):
        lengths = self.fitting(lengths, n)
        used = within(lengths, n)
        grids = GRID * -(-lengths // GRID)
        picks = _different(rng, grids, n)
        split = rng.integers(1, np.maximum(lengths, 2))
        # 0 for the first sequence, 1 for the second, 2 behind the end: each is sorted on its own
        sequence = (2 - used - within(split, n)) * grids.max()
        picks = np.sort(picks + sequence, axis=1) - sequence
        values = rng.integers(0, 1 << VALUE_BITS, (batch, n)) * used
        order = np.argsort(np.where(used, picks, grids.max()), axis=1)
        answers = bits_of(np.take_along_axis(values, order, axis=1), VALUE_BITS)
        inputs = np.empty((batch, n, self.features), np.float32)
        inputs[..., 0] = (picks + 1) / grids[:, None] * used
        inputs[..., 1:] = bits_of(values, VALUE_BITS)
        return Batch(inputs, lengths, *ended(answers, lengths))

    def practice(self, rng, batch, n, longest, options):
        """A share of the questions is on a finer grid."""
        drawn, leaves = super().practice(rng, batch, n, longest, options)
        if not options.closer:
            return drawn, leaves
        factor = CLOSEST ** -(rng.random((batch, 1)) * (rng.random((batch, 1)) < options.closer))
        place = (1.5 * rng.random((batch, 1)) - 0.25).clip(0, 1)
        inputs = drawn.inputs.copy()
        inputs[..., 0] = inputs[..., 0] * factor + place * (1 - factor)
        inputs[..., 0] *= within(drawn.lengths, n)
        return replace(drawn, inputs=inputs), leaves

    def hard_cases(self):
        return (
            HardCase("adjacent pairs", _adjacent, practised=True),
            HardCase("one against many", _one_against_many, practised=True),
            HardCase("disjoint", lambda rng, n: _question(rng, _spread(rng, n), _blocks), practised=False),
            HardCase("interleaved", lambda rng, n: _question(rng, _spread(rng, n), _in_turn), practised=True),
            HardCase("neighbours", lambda rng, n: _question(rng, _neighbours(rng, n)), practised=False),
            HardCase("finer", lambda rng, n: _question(rng, _neighbours(rng, n, finer=4)), practised=True),
            HardCase("all but one first", _all_but_one, practised=False),
        )

    def solve(self, question):
        first, second = question
        return [value for _, value in sorted([*first, *second], key=lambda pair: pair[0])]

    def encode(self, question):
        priorities, values = [], []
        for part in pair_of(question, "two sequences"):
            these, carried = pairs_of(part, "(priority, value)")
            for before, after in pairwise(map(_priority, these)):
                if after < before:
                    raise InputError(f"each sequence must be sorted, but {after} comes after {before}")
            priorities += these
            values += carried
        bits = bits_of(all_in_range(values, VALUE_BITS, "value"), VALUE_BITS)
        column = np.array(priorities, np.float32)[:, None]
        ordered = np.sort(column, axis=None)
        if (again := ordered[1:][np.diff(ordered) == 0]).size:
            raise InputError(f"priorities must differ, got {again[0]!s} twice")
        return np.concatenate([column, bits], -1)

    def decode(self, rows):
        # Printing a float32 gives the shortest decimal that stands for it: 0.1, not 0.10000000149
        priorities = [float(str(priority)) for priority in rows[:, 0].astype(np.float32)]
        pairs = list(zip(priorities, map(int, number_of(rows[:, 1:])), strict=True))
        falls = np.flatnonzero(np.diff(rows[:, 0]) < 0)
        split = int(falls[0]) + 1 if len(falls) else len(pairs)
        return pairs[:split], pairs[split:]

    def parse(self, text):
        parts = text.split("|")
        if len(parts) != 2:
            raise InputError(f"expected two sequences with one | between them, as in {self.example!r}")
        question = tuple([pair(word, real) for word in words(part)] for part in parts)
        self.encode(question)
        return question

    def show(self, question):
        first, second = (" ".join(f"{priority}:{value}" for priority, value in part) for part in question)
        return f"{first} | {second}".strip()


def _priority(value):
    """A number that may be a priority, else an error that names it."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not 0 <= value <= 1:
        raise InputError(f"a priority must be a number between 0 and 1, got {value!r}")
    return value


def _different(rng, grids, n):
    """For each example n different whole numbers in random order, below its own grid first.

    The lowest bits of random numbers hold the column they stand in, so that sorting the n
    smallest, which is much faster than an argsort of all, leaves n random columns.
    """
    columns = np.arange(max(grids.max(), n), dtype=np.uint64)
    low = len(columns).bit_length()
    noise = rng.integers(0, 1 << 64, (len(grids), len(columns)), np.uint64) >> 1 >> low << low
    noise |= columns
    noise[columns >= grids[:, None]] |= 1 << 63
    smallest = np.sort(np.partition(noise, n - 1, axis=1)[:, :n], axis=1)
    return (smallest & ((1 << low) - 1)).astype(np.int64)


def _grid(rows):
    """The grid of an example with so many rows."""
    return GRID * -(-rows // GRID)


def _spread(rng, n):
    """Random different priorities, ascending."""
    count = max(long(rng, n), 2)
    return (np.sort(rng.choice(_grid(count), count, replace=False)) + 1) / _grid(count)


def _neighbours(rng, n, finer=1):
    """Priorities that are neighbours on the grid, or on one that is so many times finer."""
    count = max(long(rng, n), 2)
    grid = _grid(count) * finer
    return (np.arange(count) + 1 + rng.integers(grid - count, endpoint=True)) / grid


def _blocks(rng, count):
    """The lower ones in one sequence, the higher in the other."""
    return (np.arange(count) < rng.integers(1, count)) ^ bool(rng.integers(2))


def _in_turn(rng, count):
    return (np.arange(count) + rng.integers(2)) % 2 == 0


def _by_chance(rng, count):
    first = rng.random(count) < 0.5
    first[rng.integers(count)] ^= first.all() or not first.any()
    return first


def _question(rng, priorities, split=_by_chance):
    """Two sequences of ascending priorities; `split` says which of them are in the first."""
    first = split(rng, len(priorities))
    values = rng.integers(1 << VALUE_BITS, size=len(priorities))
    pairs = list(zip(priorities.astype(np.float32).astype(float).tolist(), values.tolist(), strict=True))
    return [pair for pair, its in zip(pairs, first, strict=True) if its], [
        pair for pair, its in zip(pairs, first, strict=True) if not its
    ]


def _adjacent(rng, n):
    """Pairs of neighbours on the grid, one in each sequence, anywhere."""
    pairs = max(long(rng, n) // 2, 1)
    grid = _grid(2 * pairs)
    lower = 2 * np.sort(rng.choice(grid // 2, pairs, replace=False)) + 1
    priorities = np.stack([lower, lower + 1], 1).ravel() / grid
    return _question(
        rng, priorities, lambda rng, count: np.repeat(rng.random(count // 2) < 0.5, 2) ^ _in_turn(rng, count)
    )


def _one_against_many(rng, n):
    priorities = _spread(rng, n)
    only = rng.integers(len(priorities))
    return _question(rng, priorities, lambda rng, count: np.arange(count) == only)


def _all_but_one(rng, n):
    priorities = _spread(rng, n)
    only = rng.integers(len(priorities))
    return _question(rng, priorities, lambda rng, count: np.arange(count) != only)
