"""Sort: pairs in the order of their keys, equal keys in the order they came."""

from __future__ import annotations

import numpy as np

from ham.tasks import hard_cases as hard
from ham.tasks.base import Batch, HardCase, Task, all_in_range, ended, pairs_of, within
from ham.tasks.codecs import bits_of, number_of
from ham.tasks.registry import register
from ham.tasks.text import pair, words

KEY_BITS = 5
VALUE_BITS = 5


@register
class Sort(Task):
    """Keys with values, sorted stably by key.

    >>> Sort().solve([(7, 1), (3, 9), (7, 0)])
    [(3, 9), (7, 1), (7, 0)]
    """

    name = "sort"
    summary = "pairs of a 5-bit key and a 5-bit value, sorted stably by key"
    features = KEY_BITS + VALUE_BITS
    answer_bits = KEY_BITS + VALUE_BITS
    example = "7:1 3:9 7:2"

    def sample(self, rng, batch, n, lengths):
        lengths = self.fitting(lengths, n)
        used = within(lengths, n)
        pairs = rng.integers(0, 1 << self.features, (batch, n), np.int16)
        keys = np.where(used, pairs >> VALUE_BITS, 1 << KEY_BITS)
        order = np.argsort(keys, axis=1, kind="stable")
        answers = bits_of(np.take_along_axis(pairs, order, axis=1), self.answer_bits)
        inputs = bits_of(pairs * used, self.features)
        return Batch(inputs, lengths, *ended(answers, lengths))

    def hard_cases(self):
        def of(keys, length=hard.long):
            def draw(rng, n):
                count = length(rng, n)
                values = rng.integers(1 << VALUE_BITS, size=count)
                return list(zip(keys(rng, count, KEY_BITS).tolist(), values.tolist(), strict=True))

            return draw

        return (
            HardCase("all keys equal", of(hard.keys_all_equal), practised=False),
            HardCase("two keys", of(hard.keys_of_two), practised=True),
            HardCase("two keys in turn", of(hard.keys_in_turn), practised=False),
            HardCase("neighbouring keys", of(hard.keys_of_neighbours), practised=True),
            HardCase("runs of keys", of(hard.keys_in_runs), practised=True),
            HardCase("sorted", of(lambda *given: np.sort(hard.keys_of_any(*given))), practised=False),
            HardCase("backwards", of(lambda *given: -np.sort(-hard.keys_of_any(*given))), practised=True),
            HardCase("extremes", of(hard.keys_of_extremes), practised=False),
            HardCase("full", of(hard.keys_of_any, lambda rng, n: n), practised=True),
            HardCase("one", of(hard.keys_of_any, lambda rng, n: 1), practised=False),
        )

    def solve(self, question):
        return sorted(map(tuple, question), key=lambda pair: pair[0])

    def encode(self, question):
        keys, values = pairs_of(question, "(key, value)")
        key_bits = bits_of(all_in_range(keys, KEY_BITS, "key"), KEY_BITS)
        value_bits = bits_of(all_in_range(values, VALUE_BITS, "value"), VALUE_BITS)
        return np.concatenate([key_bits, value_bits], -1)

    def decode(self, rows):
        return [self.answer_item(row) for row in rows]

    def answer_row(self, item):
        return bits_of(item, KEY_BITS).reshape(-1)

    def answer_item(self, row):
        return int(number_of(row[:KEY_BITS])), int(number_of(row[KEY_BITS:]))

    def parse(self, text):
        return [pair(word) for word in words(text)]

    def show(self, question):
        return " ".join(f"{key}:{value}" for key, value in question)

    def show_answer(self, answer):
        return self.show(answer)
