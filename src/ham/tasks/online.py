"""What the data structures share: a sequence of PUSH and POP that is seen one at a time.

A question is a list whose items are values to push or the word "pop"; the answer has one item
for each "pop". The network answers at every timestep, and only its answers to POP count.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ham.core.errors import InputError
from ham.tasks.base import Batch, HardCase, Practice, Task, in_range, within
from ham.tasks.codecs import bits_of, number_of
from ham.tasks.text import integer

VALUE_BITS = 5
PUSH, POP = range(2)
VALUE = slice(2, 2 + VALUE_BITS)
FILLING, TO_THE_LAST_LEAF, POPS_WHILE_FILLING = 0.7, 0.5, 0.05
"""Share of the sequences of `fills` that begin by filling the memory, and of those that do so to the last leaf before
any POP; share of POP among the first operations of the others."""


@dataclass(frozen=True)
class OnlinePractice(Practice):
    """What a data structure is trained on."""

    cramped: float = 0.0
    """Share of batches whose memory has half as many leaves as the sequences have operations, so that each leaf is
    needed: with as many leaves, half of them may be left out and nothing is ever lost."""
    fills: float = 0.0
    """Share of batches that fill their memory to the last leaf: half as many leaves as operations, and in most of the
    sequences nearly all operations PUSH at first."""


class Online(Task):
    """A data structure; a subclass says which earlier PUSH each POP takes its value from."""

    features = 2 + VALUE_BITS
    answer_bits = VALUE_BITS
    ends = False
    online = True
    options = OnlinePractice
    capacity: int | None = None
    """Elements at which the next operation must be POP."""
    keeps_order = True
    example = "push 4, push 9, pop"

    @abstractmethod
    def fill(self, rng, inputs, pops):
        """For each POP the timestep of its PUSH; writes what a PUSH carries besides its value."""

    def draw_lengths(self, rng, batch, low, high):
        """Always `high`: a sequence of operations fills its memory."""
        if high < self.shortest:
            raise InputError(f"{self.name} needs at least one leaf, got {high}")
        return np.full(batch, high)

    def symbols(self, lengths):
        return lengths

    def sample(self, rng, batch, n, lengths):
        return self._drawn(rng, batch, n, lengths, leaves=n)

    def practice(self, rng, batch, n, longest, options):
        cramped = options.cramped and rng.random() < options.cramped
        fills = options.fills and rng.random() < options.fills
        leaves = max(n // 2, 1) if cramped or fills else n
        lengths = self.draw_lengths(rng, batch, 1, longest)
        return self._drawn(rng, batch, n, lengths, leaves=leaves, fills=bool(fills)), leaves

    def _drawn(self, rng, batch, n, lengths, *, leaves, fills=False):
        """Questions that never need more than so many leaves, though no leaf is freed."""
        lengths = self.fitting(lengths, n)
        if (longest := int(lengths.max(initial=0))) > 2 * leaves:
            raise InputError(f"{longest} operations need at least {(longest + 1) // 2} leaves, got {leaves}")
        used = within(lengths, n)
        wanted = rng.random((batch, n)) * lengths[:, None] < np.arange(1, n + 1)
        if fills:
            to_the_last = rng.random(batch) < TO_THE_LAST_LEAF
            pushing = np.where(to_the_last, n // 2, rng.integers(n // 4, n // 2, batch, endpoint=True))
            pushing *= rng.random(batch) < FILLING
            popping = (rng.random((batch, n)) < POPS_WHILE_FILLING) & ~to_the_last[:, None]
            wanted &= ~within(pushing, n) | popping
        pops = self._pops(wanted, leaves) & used
        pushes = used & ~pops
        inputs = np.zeros((batch, n, self.features), np.float32)
        inputs[..., PUSH] = pushes
        inputs[..., POP] = pops
        values = rng.integers(0, 1 << VALUE_BITS, (batch, n), np.int8) * pushes
        inputs[..., VALUE] = bits_of(values, VALUE_BITS)
        answers = np.take_along_axis(values, self.fill(rng, inputs, pops), axis=1) * pops
        return Batch(inputs, lengths, bits_of(answers, VALUE_BITS), pops)

    def _pops(self, wanted, pushes):
        """Where the operation is POP: as wanted, but never on nothing, always when full or after so many PUSHes."""
        full = self.capacity or wanted.shape[1]
        pops = np.ascontiguousarray(wanted.T)
        popped = np.zeros(len(wanted), np.int64)
        for time, pop in enumerate(pops):
            # time - popped elements were pushed, so time - 2 * popped are inside
            pop &= popped < time / 2
            pop |= popped <= max((time - full) / 2, time - pushes)
            popped += pop
        return np.ascontiguousarray(pops.T)

    def hard_cases(self):
        """No more elements are ever pushed than there are leaves: one that is popped need not free its leaf."""

        def of(operations, order=None, value=None):
            def draw(rng, n):
                return self.pushes(rng, operations(rng, n, self.capacity or n), order=order, value=value)

            return draw

        return (
            HardCase("fill, then empty", of(_fill_then_empty), practised=True),
            HardCase("one in, one out", of(_one_in_one_out), practised=False),
            HardCase(
                "equal values",
                lambda rng, n: of(_at_random, value=int(rng.integers(32)))(rng, n),
                practised=False,
            ),
            HardCase("ascending", of(_fill_then_empty, order="ascending"), practised=True),
            HardCase("descending", of(_fill_then_empty, order="descending"), practised=False),
            HardCase("full memory", of(_full), practised=True),
            HardCase("empty again and again", of(_again_and_again), practised=False),
        )

    def stocked(self, rng, batch, n, leaves):
        """Questions of at most n operations to a memory that is partly full, and what was done to its leaves before.

        The rows of the operations that a leaf of each range has seen, how many those are, and where the ranges end.
        Elements lie in the order in which they were pushed; only leaves behind them are surely free.
        """
        used = _some_of(rng, n, leaves)
        ranges = self.ranges(rng, used)
        held = [item for item, popped, count in ranges if not popped for _ in range(count)]
        inputs = np.zeros((batch, n, self.features), np.float32)
        targets = np.zeros((batch, n, self.outputs.width), np.float32)
        counted = np.zeros((batch, n), bool)
        lengths = np.zeros(batch, np.int64)
        for place in range(batch):
            operations = _from_here(rng, n, len(held), leaves - used, self.capacity or 2 * leaves)
            question = self.pushes(rng, operations, inside=held, **self.manner(rng))
            lengths[place] = len(question)
            inputs[place, : len(question)] = [self._row(item) for item in question]
            counted[place, : len(question)] = operations
            targets[place, counted[place]] = bits_of(self.solve([*held, *question]), VALUE_BITS)
        seen = [[*self.earlier(rng), item, *(["pop"] if popped else [])] for item, popped, _ in ranges]
        done = np.array([len(operations) for operations in seen], np.int64)
        rows = np.zeros((len(ranges), done.max(initial=0), self.features), np.float32)
        for kind, operations in enumerate(seen):
            rows[kind, : len(operations)] = [self._row(operation) for operation in operations]
        ends = np.cumsum([count for _, _, count in ranges], dtype=np.int64)
        return Batch(inputs, lengths, targets, counted), (rows, done, ends)

    def ranges(self, rng, used):
        """What is in the first leaves of a memory: an item, whether it was popped, and how many leaves have it."""
        popped = int(rng.integers(used, endpoint=True)) if rng.random() < 0.5 else 0
        held = used - popped
        # Ranges of all lengths, the shortest at one of the ends.
        lengths = np.exp2(rng.random(int(rng.integers(9))) * max(held, 1).bit_length()).astype(np.int64)
        cuts = np.unique(np.minimum(np.cumsum(np.sort(lengths)), held))
        counts = np.diff([0, *(held - cuts[::-1] if rng.random() < 0.7 else cuts), held]).tolist()
        ranges = [(self.any_item(rng), False, count) for count in counts]
        return self.with_popped(ranges, (self.any_item(rng), True, popped))

    def manner(self, rng):
        """How items are chosen for a memory that is partly full, as `pushes` is told."""
        return {}

    def earlier(self, rng):
        """What the leaves of a range have seen before the item that they have, or had, now: nothing, if not told."""
        return []

    def with_popped(self, ranges, popped):
        """Where those lie that were popped: a stack's are the last."""
        return [*ranges, popped]

    def any_item(self, rng):
        return int(rng.integers(1 << VALUE_BITS))

    @cached_property
    def _rows(self):
        return {}

    def _row(self, item):
        """Of one operation; looked up, since encoding must not slow training."""
        if (row := self._rows.get(item)) is None:
            row = self._rows[item] = np.zeros(self.features, np.float32)
            row[POP if item == "pop" else PUSH] = 1
            if item != "pop":
                self.encode_push(row, item, "push:")
        return row

    def pushes(self, rng, operations, *, order=None, value=None, inside=()):
        """A question of these operations, True for POP, whose values are random, in order, or all the same."""
        count = operations.count(False)
        values = rng.integers(1 << VALUE_BITS, size=count) if value is None else np.full(count, value)
        if order:
            values = np.sort(values) if order == "ascending" else -np.sort(-values)
        left = iter(values.tolist())
        return ["pop" if pop else next(left) for pop in operations]

    def encode(self, question):
        if not isinstance(question, (tuple, list)) or not question:
            raise InputError(f"expected a list of at least one operation, got {question!r}")
        rows = np.zeros((len(question), self.features), np.float32)
        size = 0
        for place, (row, item) in enumerate(zip(rows, question, strict=True), 1):
            if item != "pop":
                row[PUSH] = 1
                self.encode_push(row, item, f"operation {place}, push:")
                size += 1
            elif size > 0:
                row[POP] = 1
                size -= 1
            else:
                raise InputError(f"operation {place} is a pop, but nothing is left to pop")
        return rows

    def encode_push(self, row, item, where):
        row[VALUE] = bits_of(in_range(item, VALUE_BITS, f"{where} the value"), VALUE_BITS)

    def decode(self, rows):
        return ["pop" if row[POP] else self.decode_push(row) for row in rows]

    def decode_push(self, row):
        return int(number_of(row[VALUE]))

    def targets(self, question):
        counted = np.array([item == "pop" for item in question], bool)
        rows = np.zeros((len(question), self.outputs.width), np.float32)
        rows[counted] = bits_of(self.solve(question), VALUE_BITS)
        return rows, counted

    def read_answer(self, question, symbols):
        return [self.answer_item(row) for row, item in zip(symbols, question, strict=False) if item == "pop"]

    def parse(self, text):
        question = []
        for place, operation in enumerate(filter(None, map(str.split, text.split(","))), 1):
            match [operation[0].lower(), *operation[1:]]:
                case ["pop"]:
                    question.append("pop")
                case ["push", word]:
                    question.append(self.parse_push(word))
                case _:
                    raise InputError(
                        f"operation {place} must be a push or a pop, as in {self.example!r}, "
                        f"got {' '.join(operation)!r}"
                    )
        self.encode(question)
        return question

    def parse_push(self, word):
        return integer(word)

    def show(self, question):
        return ", ".join("pop" if item == "pop" else f"push {self.show_push(item)}" for item in question)

    def show_push(self, item):
        return str(item)


def _some_of(rng, n, leaves):
    """How many leaves are used: anything, often all but a few, often whole subtrees."""
    used = (
        int(rng.integers(leaves))
        if rng.random() < 0.5
        else leaves - int(rng.integers(1, min(n, leaves), endpoint=True))
    )
    if rng.random() < 0.4:
        height = int(rng.integers(leaves.bit_length()))
        used = used >> height << height
    return used


def _from_here(rng, n, inside, free, capacity):
    """Operations on so many elements with so many free leaves: POP as often as one share says, then as another."""
    shares, turn = rng.random(2), int(rng.integers(n, endpoint=True))
    operations: list[bool] = []
    for time, drawn in enumerate(rng.random(n)):
        pop = inside > 0 and (free == 0 or inside == capacity or drawn < shares[int(time >= turn)])
        if not pop and free == 0:
            break
        inside += 1 - 2 * pop
        free -= not pop
        operations.append(bool(pop))
    return operations


def _fill_then_empty(rng, n, capacity):
    """As many as fit, and all of them again, until all leaves were used."""
    held = min(n, capacity)
    return ([False] * held + [True] * held) * (n // held)


def _one_in_one_out(rng, n, capacity):
    return [False, True] * n


def _at_random(rng, n, capacity):
    """Mostly PUSH at first, mostly POP in the end."""
    inside, operations = 0, []
    for time in range(n):
        pop = inside > 0 and (inside == capacity or bool(rng.random() * n < time))
        inside += 1 - 2 * pop
        operations.append(pop)
    return operations


def _full(rng, n, capacity):
    """Each leaf is needed: n elements go in and out, nearly all of them in before many are out."""
    inside, pushed, operations = 0, 0, []
    while pushed < n or inside:
        pop = inside > 0 and (pushed == n or inside == capacity or bool(rng.random() < 0.1))
        inside += 1 - 2 * pop
        pushed += not pop
        operations.append(pop)
    return operations


def _again_and_again(rng, n, capacity):
    """A few in, all out, and so on."""
    operations, left = [], n
    while left:
        held = int(rng.integers(1, min(left, capacity, 4), endpoint=True))
        operations += [False] * held + [True] * held
        left -= held
    return operations
