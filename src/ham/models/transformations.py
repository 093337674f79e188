"""The small networks that HAM's transformations are made of."""

from __future__ import annotations

import itertools

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ham.core.errors import InputError
from ham.core.numbers import is_finite
from ham.ops.forms import known_as

LEAST_MEAN_SQUARE = 1e-5
"""Added to the mean square of what JOIN made before it is divided by the root."""


@known_as("mlp")
class MLP(nn.Sequential):
    """`depth` linear layers with ReLU between them; the caller applies the output's activation.

    The paper uses depth 1 or 2 and leaves the hidden width open.
    """

    def __init__(self, inputs: int, outputs: int, *, hidden: int, depth: int):
        if depth not in (1, 2):
            raise InputError(f"depth must be 1 or 2, got {depth}")
        widths = [inputs, *[hidden] * (depth - 1), outputs]
        layers: list[nn.Module] = []
        for before, after in itertools.pairwise(widths):
            layers += [nn.ReLU(), nn.Linear(before, after)]
        super().__init__(*layers[1:])
        for layer in self:
            if isinstance(layer, nn.Linear):
                nn.init.kaiming_uniform_(layer.weight, nonlinearity="relu")
                nn.init.zeros_(layer.bias)


@known_as("rectified mlp")
class Rectified(MLP):
    """EMBED, and JOIN as the paper has it: ReLU in every neuron, the output's included.

    With a `top`, values above it become it; with a `grid`, they are rounded to multiples of 1/grid.
    """

    def __init__(
        self, inputs: int, outputs: int, *, hidden: int, depth: int, top: float = 0.0, grid: int = 0
    ):
        super().__init__(inputs, outputs, hidden=hidden, depth=depth)
        self.top, self.grid = checked_top(top), checked_grid(grid)

    def forward(self, inputs: Float[Tensor, "*batch inputs"]) -> Float[Tensor, "*batch outputs"]:
        made = torch.relu(super().forward(inputs))
        return on_grid(made.clamp(max=self.top) if self.top else made, self.grid)


class Join(nn.Module):
    """What every form of JOIN has: its name in `ham.models.joins`, a ceiling, a grid.

    All are built with both; one whose values cannot grow has no use for the ceiling.
    """

    form: str
    top: float = 0.0
    grid: int = 0


@known_as("rectified join")
class RectifiedJoin(Rectified, Join):
    """The paper's JOIN."""

    form = "rectified"


@known_as("normalised join")
class NormalisedJoin(MLP, Join):
    """JOIN whose result is divided by its root mean square: values cannot grow from level to level."""

    form = "normalised"

    def __init__(
        self, inputs: int, outputs: int, *, hidden: int, depth: int, top: float = 0.0, grid: int = 0
    ):
        super().__init__(inputs, outputs, hidden=hidden, depth=depth)
        self.grid = checked_grid(grid)

    def forward(self, inputs: Float[Tensor, "*batch inputs"]) -> Float[Tensor, "*batch outputs"]:
        made = torch.relu(super().forward(inputs))
        scale = (made.square().mean(-1, keepdim=True) + LEAST_MEAN_SQUARE).rsqrt()
        return on_grid(made * scale, self.grid)


@known_as("highway join")
class HighwayJoin(Join):
    """JOIN(l, r) = T·H + (1 − T)·(S·l + (1 − S)·r): it copies up what it does not change, so nothing grows."""

    form = "highway"

    def __init__(
        self, inputs: int, outputs: int, *, hidden: int, depth: int, top: float = 0.0, grid: int = 0
    ):
        super().__init__()
        self.candidate = MLP(inputs, outputs, hidden=hidden, depth=depth)
        self.gate = MLP(inputs, outputs, hidden=hidden, depth=depth)
        self.side = MLP(inputs, outputs, hidden=hidden, depth=depth)
        self.grid = checked_grid(grid)

    def forward(self, inputs: Float[Tensor, "*batch inputs"]) -> Float[Tensor, "*batch outputs"]:
        left, right = inputs.chunk(2, -1)
        t, s = torch.sigmoid(self.gate(inputs)), torch.sigmoid(self.side(inputs))
        joined = t * torch.sigmoid(self.candidate(inputs)) + (1 - t) * (s * left + (1 - s) * right)
        return on_grid(joined, self.grid)


@known_as("write")
class Write(nn.Module):
    """WRITE(h, q) = T·H + (1 − T)·h, so that leaving a value unchanged is easy to learn."""

    def __init__(self, size: int, query: int, *, hidden: int, depth: int, grid: int = 0):
        super().__init__()
        self.candidate = MLP(size + query, size, hidden=hidden, depth=depth)
        self.gate = MLP(size + query, size, hidden=hidden, depth=depth)
        self.grid = checked_grid(grid)

    def forward(
        self, value: Float[Tensor, "*batch size"], query: Float[Tensor, "*batch query"]
    ) -> Float[Tensor, "*batch size"]:
        both = torch.cat([value, query], -1)
        t = torch.sigmoid(self.gate(both))
        return on_grid(t * torch.sigmoid(self.candidate(both)) + (1 - t) * value, self.grid)


def on_grid(values: Float[Tensor, "*shape"], grid: int) -> Float[Tensor, "*shape"]:
    """Rounded to multiples of 1/grid, unless it is 0; the gradient passes as if they were not."""
    return _Rounded.apply(values, grid) if grid else values


class _Rounded(torch.autograd.Function):
    @staticmethod
    def forward(ctx, values, grid):
        return (values * grid).round() / grid

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


def checked_top(top: float) -> float:
    if top != 0 and not (top >= 1 and is_finite(top)):
        raise InputError(
            f"top must be 0 (no ceiling) or at least 1, the largest value WRITE makes, got {top}"
        )
    return top


def checked_grid(grid: int) -> int:
    if grid < 0 or grid & (grid - 1):
        raise InputError(f"grid must be 0 (none) or a power of two, got {grid}")
    return grid
