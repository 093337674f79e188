"""What a task is: examples on demand, and an oracle in plain Python that says what is right.

A question is what a person would write (`[(7, 1), (3, 9)]`), a row is what the network reads
(ten bits). `sample` draws whole batches of rows and targets at once; `solve` knows nothing of
rows and is what every sampled target must agree with.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Bool, Float, Int, Num
from numpy import ndarray

from ham.core.errors import InputError
from ham.tasks.codecs import Bits, Codec


@dataclass(frozen=True)
class Batch:
    """Examples of one task, padded to one shape."""

    inputs: Float[ndarray, "batch slots features"]
    lengths: Int[ndarray, "batch"]
    targets: Float[ndarray, "batch symbols outputs"]
    counted: Bool[ndarray, "batch symbols"]
    """Output symbols that are asked for; whatever the model says elsewhere does not matter."""

    def __len__(self) -> int:
        return len(self.lengths)

    def repeat(self, times: int) -> Batch:
        """Every example `times` times in a row, for several sampled runs of each."""
        if times == 1:
            return self
        return Batch(
            *(np.repeat(part, times, 0) for part in (self.inputs, self.lengths, self.targets, self.counted))
        )


@dataclass(frozen=True)
class Practice:
    """How a task's training questions may ask for more than `sample`'s; a task that can has options here.

    Each is a share, and 0 by default.
    """

    def __post_init__(self) -> None:
        for name, share in vars(self).items():
            if not 0 <= share <= 1:
                raise InputError(f"practice.{name} must lie in 0 … 1, got {share}")


@dataclass(frozen=True)
class HardCase:
    """A family of questions, drawn one at a time."""

    name: str
    draw: Callable[[np.random.Generator, int], Any]
    """A question that a memory of so many leaves can hold."""
    practised: bool
    """Whether training may use it; if not, it is for reporting only."""


class Task(ABC):
    """A family of problems of every size.

    A subclass names itself and its widths and says how to `sample`, `solve`, `encode` and
    `decode`; `parse` and `show` are only needed for `ham solve`.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    features: ClassVar[int]
    """Width of an input row."""
    answer_bits: ClassVar[int]
    """Bits of an item of an answer; a task whose answers are something else has `answers` instead."""
    ends: ClassVar[bool] = True
    """Whether every output is closed by an End-Of-Output symbol (one more output bit)."""
    online: ClassVar[bool] = False
    """Whether row t is only seen at timestep t (a data structure) instead of all at once."""
    keeps_order: ClassVar[bool] = False
    """Of a data structure: whether elements have to lie in the order in which they were pushed, from one side."""
    every: ClassVar[int | None] = None
    """Memory accesses per output symbol, where the task itself fixes them."""
    shortest: ClassVar[int] = 1
    """Rows of the smallest question."""
    example: ClassVar[str] = ""
    """A question as a person would type it."""
    options: ClassVar[type[Practice]] = Practice
    """What `practice` can be asked for."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, features={self.features})"

    @property
    def answers(self) -> Codec:
        """How the network says an item of an answer; a task may have another codec here than bits."""
        return Bits(self.answer_bits)

    @property
    def outputs(self) -> Codec:
        """How the network says an output symbol: an item, or End-Of-Output."""
        return self.answers.ended() if self.ends else self.answers

    def draw_lengths(
        self, rng: np.random.Generator, batch: int, low: int, high: int
    ) -> Int[ndarray, "batch"]:
        """Numbers of input rows, uniform over the valid ones in [low, high]."""
        low = max(low, self.shortest)
        if high < low:
            raise InputError(f"{self.name} needs at least {low} leaves, got {high}")
        return rng.integers(low, high, size=batch, endpoint=True)

    def fitting(self, lengths: Any, n: int) -> Int[ndarray, "batch"]:
        """The lengths as an array, if each is one that a memory of n leaves can hold."""
        lengths = np.asarray(lengths, np.int64)
        if lengths.size and (lengths.max() > n or lengths.min() < self.shortest):
            raise InputError(
                f"{self.name} with {n} leaves takes {self.shortest} to {n} rows, "
                f"got lengths from {lengths.min()} to {lengths.max()}"
            )
        return lengths

    def symbols(self, lengths: Any) -> Any:
        """Output symbols for a question of so many rows, End-Of-Output included."""
        return lengths + self.ends

    @abstractmethod
    def sample(self, rng: np.random.Generator, batch: int, n: int, lengths: Int[ndarray, "batch"]) -> Batch:
        """Random questions of the given lengths with their targets, for a memory of n leaves."""

    def practised(self, wanted: Mapping[str, float]) -> Practice:
        """The options of `practice`, checked."""
        known = [field.name for field in fields(self.options)]
        for name in wanted:
            if name not in known:
                there = f"there are {', '.join(known)}" if known else "there are none"
                raise InputError(f"{self.name} has no option practice.{name}; {there}")
        return self.options(**wanted)

    def practice(
        self, rng: np.random.Generator, batch: int, n: int, longest: int, options: Any
    ) -> tuple[Batch, int]:
        """A batch to train on, with questions of up to so many rows, and the leaves it is to be answered with.

        It is a `sample` for n leaves, unless the task's options ask for more.
        """
        return self.sample(rng, batch, n, self.draw_lengths(rng, batch, 1, longest)), n

    def hard_cases(self) -> Sequence[HardCase]:
        """Families of questions that random ones hardly ever are; a task need not have any."""
        return ()

    def stocked(self, rng: np.random.Generator, batch: int, n: int, leaves: int) -> tuple[Batch, Any]:
        """Questions to a memory that is partly full at first, and what was done to its leaves (`Online.stocked`)."""
        raise InputError(f"{self.name} is no data structure, whose memory could be partly full at first")

    @abstractmethod
    def solve(self, question: Any) -> list:
        """The right answer, item by item."""

    @abstractmethod
    def encode(self, question: Any) -> Float[ndarray, "rows features"]:
        """The rows of a question; `InputError` names the item that cannot be one."""

    @abstractmethod
    def decode(self, rows: Float[ndarray, "rows features"]) -> Any:
        """The question that the rows stand for."""

    def answer_row(self, item: Any) -> Float[ndarray, "outputs"]:
        """What the network should give for one item of an answer, without End-Of-Output."""
        return self.answers.row(item)

    def answer_item(self, row: Num[ndarray, "outputs"]) -> Any:
        """The item that such a row stands for."""
        return self.answers.item(row)

    def targets(self, question: Any) -> tuple[Float[ndarray, "symbols outputs"], Bool[ndarray, "symbols"]]:
        """What the network should give for a question, and which of its symbols count."""
        answer, width = self.solve(question), self.answers.width
        rows = np.zeros((len(answer) + self.ends, self.outputs.width), np.float32)
        for row, item in zip(rows, answer, strict=False):
            row[:width] = self.answer_row(item)
        if self.ends:
            rows[-1, -1] = 1
        return rows, np.ones(len(rows), bool)

    def read_answer(self, question: Any, symbols: Num[ndarray, "symbols outputs"]) -> list:
        """The answer in the network's symbols: what comes before End-Of-Output."""
        if self.ends:
            ends = np.flatnonzero(symbols[:, -1] > 0.5)
            symbols = symbols[: ends[0]] if len(ends) else symbols
        return [self.answer_item(row[: self.answers.width]) for row in symbols]

    def right(self, answer: list, expected: list) -> bool:
        """Whether an answer may pass for the oracle's, item by item."""
        return len(answer) == len(expected) and all(map(self.answers.right, answer, expected))

    def parse(self, text: str) -> Any:
        """The question in a person's own words; `InputError` says what is wrong with it."""
        raise InputError(f"{self.name} does not say how to read a question from text (Task.parse)")

    def show(self, question: Any) -> str:
        """A question as `parse` reads it."""
        return str(question)

    def show_answer(self, answer: list) -> str:
        """An answer as a person reads it."""
        return " ".join(map(self.answers.show, answer))


def within(lengths: Int[ndarray, "batch"], slots: int) -> Bool[ndarray, "batch slots"]:
    """True where a slot is in use.

    >>> within(np.array([1, 3]), 3).astype(int)
    array([[1, 0, 0],
           [1, 1, 1]])
    """
    return np.arange(slots) < np.asarray(lengths)[:, None]


def ended(
    answers: Num[ndarray, "batch symbols outputs"], count: Int[ndarray, "batch"]
) -> tuple[Float[ndarray, "batch symbols1 outputs1"], Bool[ndarray, "batch symbols1"]]:
    """Targets and their mask: `count` answers in each example, then End-Of-Output."""
    batch, symbols, width = answers.shape
    targets = np.zeros((batch, symbols + 1, width + 1), np.float32)
    targets[:, :symbols, :width] = answers * within(count, symbols)[..., None].astype(np.float32)
    targets[np.arange(batch), count, width] = 1
    return targets, within(count + 1, symbols + 1)


def in_range(value: Any, bits: int, what: str) -> int:
    """`value` if it is a number of so many bits, else an error that names it."""
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not whole or not 0 <= value < 1 << bits:
        raise InputError(f"{what} must be a whole number between 0 and {(1 << bits) - 1}, got {value!r}")
    return int(value)


def all_in_range(values: Any, bits: int, what: str) -> list[int]:
    """The values, if all are numbers of so many bits; the error gives the position from 1."""
    if not isinstance(values, (tuple, list)) or not values:
        raise InputError(f"expected a list of at least one {what}, got {values!r}")
    most = 1 << bits
    if all(type(value) is int and 0 <= value < most for value in values):
        return list(values)  # training draws thousands of them a second
    return [in_range(value, bits, f"{what} {place}") for place, value in enumerate(values, 1)]


def pair_of(item: Any, what: str) -> tuple[Any, Any]:
    """Both halves of a pair, where a person may have given something else."""
    if not isinstance(item, (tuple, list)) or len(item) != 2:
        raise InputError(f"expected {what}, got {item!r}")
    first, second = item
    return first, second


def pairs_of(items: Any, what: str) -> tuple[list, list]:
    """All first and all second halves of a list of pairs."""
    if not isinstance(items, (tuple, list)):
        raise InputError(f"expected a list of {what}, got {items!r}")
    if not all(isinstance(item, (tuple, list)) and len(item) == 2 for item in items):
        for place, item in enumerate(items, 1):
            pair_of(item, f"{what} as item {place}")
    return [first for first, _ in items], [second for _, second in items]
