"""PriorityQueue: POP gives the value of the highest priority."""

from __future__ import annotations

import heapq

import numpy as np

from ham.core.errors import InputError
from ham.tasks.base import in_range, pair_of
from ham.tasks.codecs import bits_of, number_of
from ham.tasks.online import PUSH, VALUE, VALUE_BITS, Online
from ham.tasks.registry import register
from ham.tasks.text import pair

PRIORITY_BITS = 5
PRIORITY = slice(VALUE.stop, VALUE.stop + PRIORITY_BITS)


@register
class PriorityQueue(Online):
    """An item to push is (priority, value), as in Merge; the priorities of the elements inside all differ.

    >>> PriorityQueue().solve([(2, 4), (30, 9), "pop", "pop"])
    [9, 4]
    """

    name = "priority_queue"
    summary = "online push and pop: the highest priority first"
    features = 2 + VALUE_BITS + PRIORITY_BITS
    capacity = 1 << PRIORITY_BITS
    keeps_order = False
    example = "push 30:4, push 2:9, pop"

    def fill(self, rng, inputs, pops):
        """Play all examples at once; each has a pool of free priorities and a bit set of taken ones."""
        batch, n = pops.shape
        free = np.maximum(self.capacity - np.cumsum(1 - 2 * pops, axis=1) + 1 - 2 * pops, 0)
        pick = (rng.random((batch, n)) * free).astype(np.int64)
        row = np.arange(batch) * (self.capacity + 1)
        pool = np.tile(np.arange(self.capacity + 1), batch)
        taken = np.zeros(batch, np.int64)
        pushed = np.zeros_like(pool)
        priorities, source = np.empty((2, n, batch), np.int64)
        end = free.T + row  # behind the pool: where a POP gives its priority back
        place = np.where(pops, free, pick).T + row
        filler = np.where(pops, free, np.maximum(free - 1, 0)).T + row
        for time in range(n):
            pool[end[time]] = np.maximum(np.frexp(taken)[1] - 1, 0)  # the highest bit
            priority = priorities[time] = pool.take(place[time])
            pool[place[time]] = pool.take(filler[time])
            taken ^= 1 << priority
            source[time] = pushed.take(row + priority)
            pushed[row + priority] = time
        inputs[..., PRIORITY] = bits_of(np.where(inputs[..., PUSH], priorities.T, 0), PRIORITY_BITS)
        return source.T

    def ranges(self, rng, used):
        """Few are inside, or as many as can be, one leaf each; all around them were popped."""
        most = 3 if rng.random() < 0.5 else self.capacity - 1
        held = int(rng.integers(min(used, most), endpoint=True))
        places = np.sort(rng.choice(used, held, replace=False)).tolist() if held else []
        priorities = rng.choice(self.capacity, held, replace=False)
        if rng.random() < 0.5:  # all next to each other
            priorities = int(rng.integers(self.capacity - held, endpoint=True)) + rng.permutation(held)
        ranges = []
        before = -1
        for place, priority in zip(places, priorities.tolist(), strict=True):
            ranges.append((self.any_item(rng), True, place - before - 1))
            ranges.append(((priority, int(rng.integers(1 << VALUE_BITS))), False, 1))
            before = place
        return [*ranges, (self.any_item(rng), True, used - before - 1)]

    def manner(self, rng):
        """At random, among neighbours, which are hardest to tell apart, or in order."""
        draw = rng.random()
        if draw < 0.25:
            return {}
        if draw < 0.5:
            return {"order": "ascending"}
        width = int(rng.integers(2, 9))
        first = int(rng.integers(self.capacity - width, endpoint=True))
        return {"among": range(first, first + width)}

    def earlier(self, rng):
        """A leaf that became free is used again, in a long question many times, and may keep something of each."""
        uses = int(np.exp2(4 * rng.random())) - 1
        return [operation for _ in range(uses) for operation in (self.any_item(rng), "pop")]

    def any_item(self, rng):
        return int(rng.integers(self.capacity)), super().any_item(rng)

    def pushes(self, rng, operations, *, order=None, value=None, inside=(), among=()):
        """As every data structure's; it is the priorities that are in order, or `among` these while some are free."""
        question: list[str | tuple[int, int]] = []
        inside = {priority for priority, _ in inside}
        last = 0
        values = iter(super().pushes(rng, [pop for pop in operations if not pop], value=value))
        for pop in operations:
            if pop:
                inside.remove(max(inside))
                question.append("pop")
                continue
            free = [priority for priority in among if priority not in inside]
            free = free or [priority for priority in range(self.capacity) if priority not in inside]
            if order is None:
                priority = free[int(rng.integers(len(free)))]
            else:
                # Begin anew where nothing is left in this direction.
                up = order == "ascending"
                ahead = [one for one in free if not inside or (one > last) == up]
                priority = (min if up else max)(ahead or free)
            last = priority
            inside.add(priority)
            question.append((priority, next(values)))
        return question

    def solve(self, question):
        kept: list[tuple[int, int]] = []
        answer = []
        for item in question:
            if item == "pop":
                answer.append(heapq.heappop(kept)[1])
            else:
                priority, value = item
                heapq.heappush(kept, (-priority, value))
        return answer

    def encode(self, question):
        rows = super().encode(question)
        inside: list[int] = []
        for place, item in enumerate(question, 1):
            if item == "pop":
                inside.remove(max(inside))
            elif item[0] in inside:
                raise InputError(f"operation {place} pushes priority {item[0]}, which is still inside")
            else:
                inside.append(item[0])
        return rows

    def encode_push(self, row, item, where):
        priority, value = pair_of(item, f"(priority, value) in {where[:-1]}")
        super().encode_push(row, value, where)
        row[PRIORITY] = bits_of(in_range(priority, PRIORITY_BITS, f"{where} the priority"), PRIORITY_BITS)

    def decode_push(self, row):
        return int(number_of(row[PRIORITY])), super().decode_push(row)

    def parse_push(self, word):
        return pair(word)

    def show_push(self, item):
        return f"{item[0]}:{item[1]}"
