"""Reverse: the input from its end to its beginning."""

from __future__ import annotations

import numpy as np

from ham.tasks.base import Batch, HardCase, ended, within
from ham.tasks.codecs import bits_of
from ham.tasks.hard_cases import long
from ham.tasks.numbers import Numbers
from ham.tasks.registry import register


@register
class Reverse(Numbers):
    """Ten-bit vectors in the opposite order.

    >>> Reverse().solve([3, 1, 2])
    [2, 1, 3]
    """

    name = "reverse"
    summary = "a sequence of 10-bit vectors, backwards"
    features = 10
    answer_bits = 10
    example = "3 1 2"

    def sample(self, rng, batch, n, lengths):
        lengths = self.fitting(lengths, n)
        used = within(lengths, n)
        items = rng.integers(0, 1 << self.features, (batch, n)) * used
        backwards = np.maximum(lengths[:, None] - 1 - np.arange(n), 0)
        answers = bits_of(np.take_along_axis(items, backwards, axis=1), self.answer_bits)
        return Batch(bits_of(items, self.features), lengths, *ended(answers, lengths))

    def hard_cases(self):
        largest = (1 << self.features) - 1

        def items(rng, count):
            return rng.integers(largest, size=count, endpoint=True).tolist()

        def palindrome(rng, n):
            half = items(rng, max(long(rng, n) // 2, 1))
            return half + half[::-1]

        return (
            HardCase("zeros", lambda rng, n: [0] * long(rng, n), practised=False),
            HardCase("ones", lambda rng, n: [largest] * long(rng, n), practised=True),
            HardCase("the same item", lambda rng, n: items(rng, 1) * long(rng, n), practised=False),
            HardCase("palindromes", palindrome, practised=True),
            HardCase("any length", lambda rng, n: items(rng, int(rng.integers(n)) + 1), practised=True),
            HardCase("full", lambda rng, n: items(rng, n), practised=True),
            HardCase("one", lambda rng, n: items(rng, 1), practised=False),
        )

    def solve(self, question):
        return question[::-1]
