"""Sort4: four-bit vectors in lexicographic order, small enough to look inside the memory."""

from __future__ import annotations

import numpy as np

from ham.tasks.base import Batch, ended, within
from ham.tasks.codecs import bits_of
from ham.tasks.numbers import Numbers
from ham.tasks.registry import register

BITS = 4


@register
class Sort4(Numbers):
    """Four-bit numbers, sorted.

    >>> Sort4().solve([7, 3, 7, 1])
    [1, 3, 7, 7]
    """

    name = "sort4"
    summary = "4-bit vectors, sorted"
    features = BITS
    answer_bits = BITS
    example = "7 3 15 7"

    def sample(self, rng, batch, n, lengths):
        lengths = self.fitting(lengths, n)
        used = within(lengths, n)
        items = rng.integers(0, 1 << BITS, (batch, n), np.int16)
        last = (1 << BITS) - 1  # where no item is, so that it stays behind the others
        answers = bits_of(np.sort(np.where(used, items, last), axis=1), BITS)
        return Batch(bits_of(items * used, BITS), lengths, *ended(answers, lengths))

    def solve(self, question):
        return sorted(question)
