"""PriorityQueue: POP gives the value of the highest priority."""

from __future__ import annotations

import heapq

import numpy as np

from ham.errors import InputError
from ham.tasks.base import bits_of, in_range, number_of
from ham.tasks.online import VALUE, VALUE_BITS, Online
from ham.tasks.registry import register
from ham.tasks.text import pair

PRIORITY_BITS = 5
PRIORITY = slice(VALUE.stop, VALUE.stop + PRIORITY_BITS)


@register
class PriorityQueue(Online):
    """An item to push is (value, priority); the priorities of the elements inside all differ.

    >>> PriorityQueue().solve([(4, 2), (9, 30), "pop", "pop"])
    [9, 4]
    """

    name = "priority_queue"
    summary = "online push and pop: the highest priority first"
    features = 2 + VALUE_BITS + PRIORITY_BITS
    capacity = 1 << PRIORITY_BITS
    example = "push 4:30, push 9:2, pop"

    def fill(self, rng, inputs, pops):
        batch, n = pops.shape
        each, last = np.arange(batch), self.capacity - 1
        inside = np.zeros((batch, self.capacity), bool)  # column 0 is the highest priority
        pushed = np.zeros((batch, self.capacity), np.int64)
        source = np.zeros((batch, n), np.int64)
        columns = np.zeros((batch, n), np.int64)
        draws = rng.random((n, batch))
        for time in range(n):
            pop = pops[:, time]
            free = np.cumsum(~inside, axis=1, dtype=np.int8)
            pick = (free > (draws[time] * free[:, -1])[:, None]).argmax(axis=1)
            column = np.where(pop, inside.argmax(axis=1), pick)
            source[:, time] = pushed[each, column]
            pushed[each, column] = time
            inside[each, column] = ~pop
            columns[:, time] = column
        pushes = inputs[..., :1]
        inputs[..., PRIORITY] = bits_of(last - columns, PRIORITY_BITS) * pushes
        return source

    def solve(self, question):
        kept, answer = [], []
        for item in question:
            if item == "pop":
                answer.append(heapq.heappop(kept)[1])
            else:
                value, priority = item
                heapq.heappush(kept, (-priority, value))
        return answer

    def encode(self, question):
        rows = super().encode(question)
        inside = []
        for place, item in enumerate(question, 1):
            if item == "pop":
                inside.remove(max(inside))
            elif item[1] in inside:
                raise InputError(f"operation {place} pushes priority {item[1]}, which is still inside")
            else:
                inside.append(item[1])
        return rows

    def encode_push(self, row, item, where):
        if not isinstance(item, (tuple, list)) or len(item) != 2:
            raise InputError(f"{where} expected a value and a priority, got {item!r}")
        super().encode_push(row, item[0], where)
        row[PRIORITY] = bits_of(in_range(item[1], PRIORITY_BITS, f"{where} the priority"), PRIORITY_BITS)

    def decode_push(self, row):
        return super().decode_push(row), int(number_of(row[PRIORITY]))

    def parse_push(self, word):
        return pair(word)

    def show_push(self, item):
        return f"{item[0]}:{item[1]}"
