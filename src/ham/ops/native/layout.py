"""The widths of a model with a memory, read off its parameters by their names, and what bounds its values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from torch import Tensor

from ham.core.errors import InputError
from ham.core.numbers import is_finite
from ham.ops.native.calls import expected_parameters, in_order, matrix
from ham.ops.native.checks import Shapes, check_parameters

JOINS = ("rectified", "normalised", "highway")
"""In the order of HamJoin."""


class Sizes(NamedTuple):
    """Widths of a model; `depth` 1 has no hidden layer."""

    bits: int
    width: int
    query: int
    hidden: int
    outputs: int
    depth: int
    has_lstm: bool
    highway: bool = False
    """Whether JOIN is a highway one, which has three networks instead of one."""

    @classmethod
    def of(cls, parameters: Mapping[str, Tensor]) -> Sizes:
        """Those of a model with these parameters, all of which are checked."""
        has_lstm = "controller.weight_hh" in parameters
        highway = "join.candidate.0.weight" in parameters
        depth = 2 if "search.2.weight" in parameters else 1
        width = matrix(parameters, "join.candidate.0.weight" if highway else "join.0.weight")[1] // 2
        first, both = matrix(parameters, "search.0.weight")
        query = matrix(parameters, "controller.weight_hh")[1] if has_lstm else both - width
        bits = matrix(parameters, "embed.0.weight")[1] if has_lstm else query
        output = "output.weight" if has_lstm else f"output.{2 * depth - 2}.weight"
        outputs = matrix(parameters, output)[0]
        sizes = cls(bits, width, query, first if depth == 2 else 0, outputs, depth, has_lstm, highway)
        check_parameters(sizes.in_order(parameters), sizes.parameters)
        return sizes

    @property
    def fields(self) -> dict[str, int]:
        """Those of HamEpisode."""
        return {name: int(value) for name, value in self._asdict().items() if name != "highway"}

    @property
    def parameters(self) -> Shapes:
        """Names and shapes of all parameters, in the order in which the engine takes them."""
        join = JOINS.index("highway") if self.highway else 0
        return expected_parameters("episode", leaves=1, join=join, **self.fields)

    def in_order(self, parameters: Mapping[str, Tensor]) -> list[Tensor]:
        return in_order(parameters, self.parameters, "LSTM+HAM" if self.has_lstm else "raw HAM")


def check_bounds(highway: bool, join: str, top: float, grid: int, cell_bound: float) -> None:
    if join not in JOINS:
        raise InputError(f"join must be one of {', '.join(JOINS)}, got {join!r}")
    if highway != (join == "highway"):
        raise InputError(
            f"the parameters are {'' if highway else 'not '}a highway JOIN's, but join is {join!r}"
        )
    if top != 0 and not (top >= 1 and is_finite(top)):
        raise InputError(f"top must be 0 or at least 1, got {top}")
    if not 0 <= grid <= 1 << 20 or grid & (grid - 1):
        raise InputError(f"grid must be 0 or a power of two up to {1 << 20:,}, got {grid}")
    if not (is_finite(cell_bound) and cell_bound >= 0):
        raise InputError(f"cell_bound must be finite and not negative, got {cell_bound}")
