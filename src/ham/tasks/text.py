"""Reading a person's values from text, with errors that point at the word."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from ham.core.errors import InputError


def words(text: str) -> list[str]:
    """The words of a text, separated by blanks or commas."""
    return [word for word in re.split(r"[\s,]+", text) if word]


def integer(word: str) -> int:
    try:
        return int(word)
    except ValueError:
        raise InputError(f"expected a whole number, got {word!r}") from None


def integers(text: str) -> list[int]:
    return [integer(word) for word in words(text)]


def real(word: str) -> float:
    try:
        return float(word)
    except ValueError:
        raise InputError(f"expected a number, got {word!r}") from None


def pair(word: str, first: Callable[[str], Any] = integer) -> tuple[Any, int]:
    """The two sides of `7:1`."""
    left, colon, right = word.partition(":")
    if not colon:
        raise InputError(f"expected two numbers such as 7:1, got {word!r}")
    return first(left), integer(right)
