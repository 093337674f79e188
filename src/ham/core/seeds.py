"""One scheme for every random generator, so that no example drawn for one purpose is ever drawn for another."""

from __future__ import annotations

from enum import IntEnum

import numpy as np


class Purpose(IntEnum):
    """What random numbers are for; the first word of every seed."""

    TRAINING = 0
    VALIDATION = 1
    TEST = 2
    SEARCH = 3
    WEIGHTS = 4
    ACCEPTANCE = 5
    SOAK = 9


def seed_words(purpose: Purpose, seed: int, *which: int | str) -> list[int]:
    """All that decides a generator.

    >>> seed_words(Purpose.TEST, 7, 32, "add")
    [2, 7, 32, 97, 100, 100]
    """
    words = [int(purpose), seed]
    for word in which:
        words += word.encode() if isinstance(word, str) else [word]
    return words


def generator(purpose: Purpose, seed: int, *which: int | str) -> np.random.Generator:
    """The generator of one batch, epoch or measurement: `which` tells it from the others of its purpose."""
    return np.random.default_rng(seed_words(purpose, seed, *which))
