"""Which numbers models can compute with, and which can count."""

import operator
from typing import SupportsIndex

from ham.core.errors import InputError

LARGEST = 3.4028234663852886e38
"""Of float32."""


def is_finite(number: float) -> bool:
    """Whether a number is one in float32 too.

    >>> is_finite(1e38), is_finite(1e39), is_finite(float("nan"))
    (True, False, False)
    """
    return -LARGEST <= number <= LARGEST


def whole(name: str, number: SupportsIndex) -> int:
    """A whole number of any kind, numpy's for one, as Python's own.

    >>> whole("leaves", 32)
    32
    """
    try:
        return operator.index(number)
    except TypeError:
        raise InputError(f"{name} must be a whole number, got {number!r}") from None
