"""Which numbers models can compute with."""

LARGEST = 3.4028234663852886e38
"""Of float32."""


def is_finite(number: float) -> bool:
    """Whether a number is one in float32 too.

    >>> is_finite(1e38), is_finite(1e39), is_finite(float("nan"))
    (True, False, False)
    """
    return -LARGEST <= number <= LARGEST
