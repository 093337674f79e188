"""Search: the value of the first pair that has the asked key, in two accesses."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from ham.core.errors import InputError
from ham.tasks import hard_cases as hard
from ham.tasks.base import Batch, HardCase, Task, all_in_range, in_range, pair_of, pairs_of, within
from ham.tasks.codecs import bits_of, number_of
from ham.tasks.registry import register
from ham.tasks.text import integer, pair, words

KEY_BITS = 5
VALUE_BITS = 5


@register
class Search(Task):
    """Pairs sorted by key, then the query, which is marked by a bit of its own.

    >>> Search().solve(([(1, 5), (3, 7), (3, 2)], 3))
    [7]
    """

    name = "search"
    summary = "the value of the first of sorted key:value pairs that has the asked key"
    features = KEY_BITS + VALUE_BITS + 1
    answer_bits = VALUE_BITS
    ends = False
    every = 2
    shortest = 2
    example = "1:5 3:7 9:2 ? 3"

    def symbols(self, lengths):
        return lengths * 0 + 1

    def sample(self, rng, batch, n, lengths):
        lengths = self.fitting(lengths, n)
        each, last = np.arange(batch), lengths - 1
        used = within(last, n)
        keys = np.sort(np.where(used, rng.integers(0, 1 << KEY_BITS, (batch, n)), 1 << KEY_BITS), axis=1)
        values = rng.integers(0, 1 << VALUE_BITS, (batch, n)) * used
        query = keys[each, rng.integers(0, last)]
        first = np.argmax(keys == query[:, None], axis=1)
        keys = np.where(used, keys, 0)
        keys[each, last] = query
        inputs = np.zeros((batch, n, self.features), np.float32)
        inputs[..., :-1] = bits_of(keys << VALUE_BITS | values, KEY_BITS + VALUE_BITS)
        inputs[each, last, -1] = 1
        targets = bits_of(values[each, first], VALUE_BITS)[:, None]
        return Batch(inputs, lengths, targets, np.ones((batch, 1), bool))

    def hard_cases(self):
        def of(keys, length=hard.long, ask=None):
            def draw(rng, n):
                count = max(length(rng, n) - 1, 1)
                found = np.sort(keys(rng, count, KEY_BITS))
                values = rng.integers(1 << VALUE_BITS, size=count)
                asked = found[rng.integers(count) if ask is None else ask]
                return list(zip(found.tolist(), values.tolist(), strict=True)), int(asked)

            return draw

        return (
            HardCase("all keys equal", of(hard.keys_all_equal), practised=False),
            HardCase("two keys", of(hard.keys_of_two), practised=True),
            HardCase("runs of keys", of(hard.keys_in_runs), practised=True),
            HardCase("extremes", of(hard.keys_of_extremes), practised=False),
            HardCase("the first key", of(hard.keys_of_any, ask=0), practised=True),
            HardCase("the last key", of(hard.keys_of_any, ask=-1), practised=False),
            HardCase("full", of(hard.keys_of_any, lambda rng, n: n), practised=True),
            HardCase("one", of(hard.keys_of_any, lambda rng, n: 2), practised=False),
        )

    def solve(self, question):
        pairs, query = question
        return [next(value for key, value in pairs if key == query)]

    def encode(self, question):
        pairs, query = pair_of(question, "pairs and a query")
        keys, values = pairs_of(pairs, "(key, value)")
        all_in_range(keys, KEY_BITS, "key")
        all_in_range(values, VALUE_BITS, "value")
        for place, (before, after) in enumerate(pairwise(keys), 2):
            if after < before:
                raise InputError(f"keys must be sorted, but key {place}, {after}, comes after {before}")
        if in_range(query, KEY_BITS, "the query") not in keys:
            raise InputError(f"the query must be one of the keys, got {query}")
        rows = np.zeros((len(pairs) + 1, self.features), np.float32)
        rows[:, :KEY_BITS] = bits_of([*keys, query], KEY_BITS)
        rows[:-1, KEY_BITS:-1] = bits_of(values, VALUE_BITS)
        rows[-1, -1] = 1
        return rows

    def decode(self, rows):
        *keys, query = map(int, number_of(rows[:, :KEY_BITS]))
        values = map(int, number_of(rows[:-1, KEY_BITS:-1]))
        return list(zip(keys, values, strict=True)), query

    def parse(self, text):
        pairs, mark, query = text.partition("?")
        if not mark:
            raise InputError(f"expected pairs, a question mark and a key, as in {self.example!r}")
        question = [pair(word) for word in words(pairs)], integer(query.strip())
        self.encode(question)
        return question

    def show(self, question):
        pairs, query = question
        return " ".join([*(f"{key}:{value}" for key, value in pairs), "?", str(query)])
