"""Stack: POP gives the element pushed last."""

from __future__ import annotations

import numpy as np

from ham.tasks.online import Online
from ham.tasks.registry import register


@register
class Stack(Online):
    """Last in, first out.

    >>> Stack().solve([4, 9, "pop", "pop"])
    [9, 4]
    """

    name = "stack"
    summary = "online push and pop: last in, first out"

    def fill(self, rng, inputs, pops):
        # At each height PUSH and POP alternate, so a POP takes from the operation just before it there
        height = np.cumsum(1 - 2 * pops, axis=1) + pops
        order = np.argsort(height, axis=1, kind="stable")
        source = np.empty_like(order)
        np.put_along_axis(source, order, np.roll(order, 1, axis=1), axis=1)
        return source

    def solve(self, question):
        kept: list[int] = []
        answer = []
        for item in question:
            if item == "pop":
                answer.append(kept.pop())
            else:
                kept.append(item)
        return answer
