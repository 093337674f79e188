"""A task whose answers are real numbers: the largest of some."""

import numpy as np

from ham import InputError
from ham.tasks import Batch, Real, Task, register, within
from ham.tasks.text import real, words


@register
class Largest(Task):
    name = "largest"
    summary = "the largest of real numbers between 0 and 1, to within 0.05"
    features = 1
    answers = Real(tolerance=0.05, deviation=0.1)
    ends = False  # always one output symbol, so no End-Of-Output is needed
    example = "0.31 0.92 0.4"

    def symbols(self, lengths):
        return lengths * 0 + 1

    def sample(self, rng, batch, n, lengths):
        numbers = rng.random((batch, n, 1), np.float32) * within(lengths, n)[..., None].astype(np.float32)
        return Batch(numbers, lengths, numbers.max(axis=1, keepdims=True), np.ones((batch, 1), bool))

    def solve(self, question):
        return [max(question)]

    def encode(self, question):
        for place, number in enumerate(question, 1):
            if not 0 <= number <= 1:
                raise InputError(f"number {place} must lie in 0 … 1, got {number}")
        return np.array(question, np.float32)[:, None]

    def decode(self, rows):
        return [float(number) for number in rows[:, 0]]

    def parse(self, text):
        return [real(word) for word in words(text)]

    def show(self, question):
        return " ".join(map(str, question))
