"""What a network's outputs mean: bits, one of several categories, or real numbers.

A codec owns how many outputs a symbol has, their log-likelihood (which is also a reward of REINFORCE), when a symbol
is right, and how an item of an answer is read from outputs and printed. A codec is a value that knows no model.
PyTorch is imported where tensors come in: to name a task must not take as long as to run one.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from jaxtyping import Float, Int, Num
from numpy import ndarray

from ham.core.errors import InputError

if TYPE_CHECKING:
    from torch import Tensor


class Codec(ABC):
    """One output symbol. Outputs and targets are tensors [..., width]."""

    part: ClassVar[str] = "symbol"
    """What is counted as right or wrong on its own; a symbol, unless it has parts."""

    @property
    @abstractmethod
    def width(self) -> int:
        """Outputs of a symbol."""

    @property
    def discrete(self) -> bool:
        """Whether symbols are made of zeros and ones."""
        return True

    @abstractmethod
    def log_prob(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Log-likelihood of the target symbols, [...]."""

    @abstractmethod
    def hits(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Whether each part of a symbol is right, [..., parts]."""

    @abstractmethod
    def read(self, outputs: Tensor) -> Tensor:
        """The likeliest symbols, as targets have them: what is fed back, and what an answer is read from."""

    def chances(self, outputs: Tensor) -> Tensor:
        """Outputs as a person may look at them: probabilities, where they stand for such."""
        return outputs

    @abstractmethod
    def row(self, item: Any) -> Float[ndarray, "width"]:
        """The target of one item of an answer."""

    @abstractmethod
    def item(self, row: Num[ndarray, "width"]) -> Any:
        """The item that a symbol stands for."""

    def right(self, item: Any, expected: Any) -> bool:
        """Whether an item of an answer may pass for the oracle's."""
        return bool(item == expected)

    def show(self, item: Any) -> str:
        """An item as it is printed."""
        return str(item)

    @abstractmethod
    def problem(self, targets: Num[ndarray, "*symbols width"]) -> str:
        """What speaks against targets; empty if nothing does."""

    def ended(self) -> Codec:
        """The same with End-Of-Output, one more bit."""
        return Ended(self)


@dataclass(frozen=True)
class Bits(Codec):
    """Independent bits, as in the paper: an output is the logit of a bit, an item a whole number."""

    count: int
    part = "bit"

    @property
    def width(self):
        return self.count

    def log_prob(self, outputs, targets):
        from torch.nn import functional as F

        return -F.binary_cross_entropy_with_logits(outputs, targets, reduction="none").sum(-1)

    def hits(self, outputs, targets):
        """A bit is right if its right value has a probability above one half."""
        return (outputs > 0) == (targets > 0.5)

    def read(self, outputs):
        return (outputs > 0).to(outputs.dtype)

    def chances(self, outputs):
        return outputs.sigmoid()

    def row(self, item):
        return bits_of(item, self.count)

    def item(self, row):
        return int(number_of(row))

    def problem(self, targets):
        return "" if np.isin(targets, (0, 1)).all() else "must give targets of zeros and ones"

    def ended(self):
        return Bits(self.count + 1)


class OneHot(Codec):
    """One of several categories: outputs are their logits, an item is a category.

    >>> OneHot("even", "odd").row("odd")
    array([0., 1.], dtype=float32)
    """

    def __init__(self, *categories: Any):
        if len(categories) < 2 or len(set(categories)) < len(categories):
            raise InputError(f"OneHot needs at least two categories, all different, got {categories}")
        self.categories = categories

    def __repr__(self) -> str:
        return f"OneHot{self.categories}"

    @property
    def width(self):
        return len(self.categories)

    def log_prob(self, outputs, targets):
        return (outputs.log_softmax(-1) * targets).sum(-1)

    def hits(self, outputs, targets):
        """A symbol is right if the right category is the likeliest."""
        return (outputs.argmax(-1) == targets.argmax(-1))[..., None]

    def read(self, outputs):
        from torch.nn import functional as F

        return F.one_hot(outputs.argmax(-1), self.width).to(outputs.dtype)

    def chances(self, outputs):
        return outputs.softmax(-1)

    def row(self, item):
        if item not in self.categories:
            raise InputError(f"an answer must be one of {', '.join(map(str, self.categories))}, got {item!r}")
        return np.eye(self.width, dtype=np.float32)[self.categories.index(item)]

    def item(self, row):
        return self.categories[int(row.argmax())]

    def problem(self, targets):
        fits = np.isin(targets, (0, 1)).all() and (targets.sum(-1) <= 1).all()
        return "" if fits else "must give targets with a single one, at the right category"


@dataclass(frozen=True)
class Real(Codec):
    """Real numbers: outputs are the numbers themselves, the means of Gaussians of one deviation.

    An item is a number, or a tuple of `count` of them. It is right when each is within the tolerance.
    """

    tolerance: float
    count: int = 1
    deviation: float = 1.0
    """Squared errors count by half its inverse square: the log-likelihood, but for a constant."""

    def __post_init__(self) -> None:
        if not (0 < self.tolerance < math.inf and 0 < self.deviation < math.inf and self.count >= 1):
            raise InputError(f"Real needs a tolerance, a count and a deviation above 0, got {self}")

    @property
    def width(self):
        return self.count

    @property
    def discrete(self):
        return False

    def log_prob(self, outputs, targets):
        return -0.5 * ((outputs - targets) / self.deviation).square().sum(-1)

    def hits(self, outputs, targets):
        return ((outputs - targets).abs() <= self.tolerance).all(-1, keepdim=True)

    def read(self, outputs):
        return outputs

    def row(self, item):
        return np.array(item if self.count > 1 else [item], np.float32)

    def item(self, row):
        numbers = tuple(float(number) for number in row)
        return numbers if self.count > 1 else numbers[0]

    def right(self, item, expected):
        apart = np.abs(self.row(item) - self.row(expected))
        return bool((apart <= np.float32(self.tolerance)).all())

    def show(self, item):
        """With as many digits as the tolerance has, and one more."""
        digits = max(1 - math.floor(math.log10(self.tolerance)), 0)
        return ":".join(f"{number:.{digits}f}" for number in (item if self.count > 1 else [item]))

    def problem(self, targets):
        return "" if np.isfinite(targets).all() else "must give finite targets, got NaN or infinity"


@dataclass(frozen=True)
class Ended(Codec):
    """Symbols of another codec with End-Of-Output, the logit of one more bit; beside it an item says nothing."""

    inner: Codec

    @property
    def discrete(self):
        return self.inner.discrete

    @property
    def width(self):
        return self.inner.width + 1

    def log_prob(self, outputs, targets):
        of_item = self.inner.log_prob(outputs[..., :-1], targets[..., :-1])
        return of_item * (1 - targets[..., -1]) + END.log_prob(outputs[..., -1:], targets[..., -1:])

    def hits(self, outputs, targets):
        of_item = self.inner.hits(outputs[..., :-1], targets[..., :-1]) | (targets[..., -1:] > 0.5)
        return of_item & END.hits(outputs[..., -1:], targets[..., -1:])

    def read(self, outputs):
        return self._joined(self.inner.read(outputs[..., :-1]), END.read(outputs[..., -1:]))

    def chances(self, outputs):
        return self._joined(self.inner.chances(outputs[..., :-1]), END.chances(outputs[..., -1:]))

    def _joined(self, item: Tensor, end: Tensor) -> Tensor:
        import torch

        return torch.cat([item, end], -1)

    def row(self, item):
        return np.append(self.inner.row(item), np.float32(0))

    def item(self, row):
        return self.inner.item(row[:-1])

    def right(self, item, expected):
        return self.inner.right(item, expected)

    def show(self, item):
        return self.inner.show(item)

    def problem(self, targets):
        return self.inner.problem(targets[..., :-1]) or END.problem(targets[..., -1:])


END = Bits(1)


def bits_of(numbers: Any, width: int) -> Float[ndarray, "*shape width"]:
    """Binary digits, most significant first, so that the lexicographic order is the numeric one.

    >>> bits_of(6, 4)
    array([0., 1., 1., 0.], dtype=float32)
    """
    numbers = np.asarray(numbers, np.int64)
    if width <= 12:
        return _all_digits(width).take(numbers, axis=0)
    return _digits(numbers, width)


def _digits(numbers: Int[ndarray, "*shape"], width: int) -> Float[ndarray, "*shape width"]:
    return (numbers[..., None] >> np.arange(width - 1, -1, -1) & 1).astype(np.float32)


@cache
def _all_digits(width: int) -> Float[ndarray, "numbers width"]:
    """Looking digits up is several times faster than shifting, and sampling must not slow training."""
    return _digits(np.arange(1 << width), width)


def number_of(bits: Num[ndarray, "*shape width"]) -> Int[ndarray, "*shape"]:
    """The inverse of `bits_of`.

    >>> int(number_of(np.array([0., 1., 1., 0.])))
    6
    """
    return np.asarray(np.rint(bits).astype(np.int64) @ _place_values(bits.shape[-1]))


@cache
def _place_values(width: int) -> Int[ndarray, "width"]:
    return 1 << np.arange(width - 1, -1, -1)
