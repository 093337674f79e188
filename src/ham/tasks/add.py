"""Add: two binary numbers, written as a, +, b, = from their least significant bits."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import numpy as np

from ham.core.errors import InputError
from ham.tasks.base import Batch, Practice, Task, ended, pair_of, within
from ham.tasks.registry import register

BIT, PLUS, EQUALS = range(3)


@dataclass(frozen=True)
class AddPractice(Practice):
    """What Add is trained on."""

    varied: float = 0.0
    """Share of the questions whose numbers differ in length, and share of those with blank rows among the others, so
    that the number of digits does not say where each digit is."""


@register
class Add(Task):
    """Numbers are strings of binary digits as people write them; the answer is its bits, lowest first.

    Two numbers of k bits take 2k + 2 rows; their sum is always k + 1 bits.

    >>> Add().solve(("1011", "110"))
    [1, 0, 0, 0, 1]
    """

    name = "add"
    summary = "two binary numbers, added"
    features = 3
    answer_bits = 1
    shortest = 4
    example = "1011 + 110"
    options = AddPractice

    def draw_lengths(self, rng, batch, low, high):
        least, most = max((low - 1) // 2, 1), (high - 2) // 2
        if most < least:
            raise InputError(f"add takes 4, 6, 8 ... rows, none of which is in {low} to {high}")
        return 2 * rng.integers(least, most, size=batch, endpoint=True) + 2

    def symbols(self, lengths):
        return lengths // 2 + 1

    def sample(self, rng, batch, n, lengths):
        lengths = self.fitting(lengths, n)
        if np.any(lengths % 2):
            raise InputError(f"add takes an even number of rows, got {lengths[lengths % 2 == 1][0]}")
        return _drawn(rng, n, lengths, first=lengths // 2 - 1, most=n // 2 - 1)

    def practice(self, rng, batch, n, longest, options):
        """A share of the questions splits its digits between the numbers at random, and a share has blank rows.

        In `sample` the number of digits says where each digit is. A network learns that by heart, one number of
        digits at a time, unless it is of no use.
        """
        if not options.varied:
            return super().practice(rng, batch, n, longest, options)
        lengths = self.fitting(self.draw_lengths(rng, batch, 1, longest), n)
        first = np.where(rng.random(batch) < options.varied, rng.integers(1, lengths - 2), lengths // 2 - 1)
        drawn = _drawn(rng, n, lengths, first=first, most=n - 3)
        rows = np.where(rng.random(batch) < options.varied, rng.integers(lengths, n, endpoint=True), lengths)
        return _spread(rng, drawn, rows), n

    def solve(self, question):
        total = sum(int(number, 2) for number in question)
        digits = f"{total:0{max(map(len, question)) + 1}b}"
        return [int(digit) for digit in reversed(digits)]

    def encode(self, question):
        first, second = pair_of(question, "two binary numbers")
        for number in (first, second):
            if not isinstance(number, str) or not re.fullmatch("[01]+", number):
                raise InputError(f"expected a binary number such as 1011, got {number!r}")
        width = max(len(first), len(second))
        rows = np.zeros((2 * width + 2, self.features), np.float32)
        rows[:width, BIT] = [int(digit) for digit in reversed(first.zfill(width))]
        rows[width, PLUS] = 1
        rows[width + 1 : -1, BIT] = [int(digit) for digit in reversed(second.zfill(width))]
        rows[-1, EQUALS] = 1
        return rows

    def decode(self, rows):
        digits = "".join(str(int(bit)) for bit in rows[::-1, BIT])
        width = len(rows) // 2 - 1
        return digits[-width:], digits[1 : width + 1]

    def parse(self, text):
        numbers = [number.strip() for number in text.split("+")]
        if len(numbers) != 2:
            raise InputError(f"expected two binary numbers with one + between them, as in {self.example!r}")
        question = tuple(numbers)
        self.encode(question)
        return question

    def show(self, question):
        return " + ".join(question)

    def show_answer(self, answer):
        digits = "".join(str(bit) for bit in reversed(answer))
        return digits.lstrip("0") or digits[:1]


def _drawn(rng, n, lengths, *, first, most) -> Batch:
    """Random questions; the first number has `first` digits, the second what is left, and neither more than `most`."""
    batch, second = len(lengths), lengths - 2 - first
    each = np.arange(batch)
    bits = rng.integers(0, 2, (batch, n), np.int8) * within(lengths - 1, n)
    bits[each, first] = 0
    after_plus = np.minimum(first[:, None] + 1 + np.arange(most), n - 1)
    sums = np.zeros((batch, most + 1), np.int8)
    sums[:, :most] = bits[:, :most] * within(first, most)
    sums[:, :most] += np.take_along_axis(bits, after_plus, axis=1) * within(second, most)
    answers = (sums + _carries(sums)) % 2
    inputs = np.zeros((batch, n, Add.features), np.float32)
    inputs[..., BIT] = bits
    inputs[each, first, PLUS] = 1
    inputs[each, lengths - 1, EQUALS] = 1
    return Batch(inputs, lengths, *ended(answers[..., None], np.maximum(first, second) + 1))


def _spread(rng, batch, rows) -> Batch:
    """The same questions over so many rows; those at random places among them are blank, which is + and = at once."""
    n = batch.inputs.shape[1]
    order = np.where(within(rows, n), rng.random((len(rows), n)), 1.0)
    taken = order <= np.take_along_axis(np.sort(order), batch.lengths[:, None] - 1, axis=1)
    inputs = np.zeros_like(batch.inputs)
    inputs[..., [PLUS, EQUALS]] = within(rows, n)[..., None]
    inputs[taken] = batch.inputs[within(batch.lengths, n)]
    return replace(batch, inputs=inputs, lengths=rows)


def _carries(sums):
    """The carry into each place: set where the last place below it that is not 1 is 2."""
    places = np.arange(sums.shape[1])
    deciding = np.maximum.accumulate(np.where(sums != 1, places, 0), axis=1)
    carries = np.zeros_like(sums)
    carries[:, 1:] = np.take_along_axis(sums, deciding, axis=1)[:, :-1] == 2
    return carries
