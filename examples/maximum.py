"""A task of one's own: the largest of some 5-bit numbers."""

import numpy as np

from ham.tasks import Batch, Task, all_in_range, bits_of, number_of, register, within
from ham.tasks.text import integers


@register
class Maximum(Task):
    name = "maximum"
    summary = "the largest of 5-bit numbers"
    features = 5
    answer_bits = 5
    ends = False  # always one output symbol, so no End-Of-Output is needed
    example = "3 17 4"

    def symbols(self, lengths):
        return lengths * 0 + 1

    def sample(self, rng, batch, n, lengths):
        numbers = rng.integers(0, 32, (batch, n)) * within(lengths, n)
        targets = bits_of(numbers.max(axis=1, keepdims=True), 5)
        return Batch(bits_of(numbers, 5), lengths, targets, np.ones((batch, 1), bool))

    def solve(self, question):
        return [max(question)]

    def encode(self, question):
        return bits_of(all_in_range(question, 5, "number"), 5)

    def decode(self, rows):
        return number_of(rows).tolist()

    def parse(self, text):
        return integers(text)

    def show(self, question):
        return " ".join(map(str, question))
