"""Queue: POP gives the element pushed first."""

from __future__ import annotations

from collections import deque

import numpy as np

from ham.tasks.online import Online
from ham.tasks.registry import register


@register
class Queue(Online):
    """First in, first out.

    >>> Queue().solve([4, 9, "pop", "pop"])
    [4, 9]
    """

    name = "queue"
    summary = "online push and pop: first in, first out"

    def fill(self, rng, inputs, pops):
        pushes = np.argsort(pops, axis=1, kind="stable")
        return np.take_along_axis(pushes, np.maximum(np.cumsum(pops, axis=1) - 1, 0), axis=1)

    def with_popped(self, ranges, popped):
        return [popped, *ranges]

    def solve(self, question):
        kept: deque[int] = deque()
        answer = []
        for item in question:
            if item == "pop":
                answer.append(kept.popleft())
            else:
                kept.append(item)
        return answer
