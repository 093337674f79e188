"""The small networks that HAM's transformations are made of."""

from __future__ import annotations

import itertools

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ham.core.errors import InputError
from ham.ops.forms import known_as


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
    """EMBED and JOIN: ReLU in every neuron, the output's included."""

    def forward(self, inputs: Float[Tensor, "*batch inputs"]) -> Float[Tensor, "*batch outputs"]:
        return torch.relu(super().forward(inputs))


@known_as("join")
class Join(Rectified):
    """JOIN, which can be trained with a pull: `pull`·h²/2 is added to the loss for every value h that it makes.

    Values that stay small stay where they are from level to level, so a taller tree looks like those trained on.
    """

    pull: float = 0.0

    def forward(
        self, inputs: Float[Tensor, "*batch inputs"], times: int | Tensor = 1
    ) -> Float[Tensor, "*batch outputs"]:
        """`times`: how often the pull of the result counts, for all or for each of the batch."""
        joined = super().forward(inputs)
        if self.pull and torch.is_grad_enabled():
            joined = _Pull.apply(joined, self.pull * times)
        return joined


class _Pull(torch.autograd.Function):
    @staticmethod
    def forward(ctx, value, weight):
        ctx.save_for_backward(value)
        ctx.weight = weight
        return value.view_as(value)

    @staticmethod
    def backward(ctx, gradient):
        (value,) = ctx.saved_tensors
        return gradient + ctx.weight * value, None


@known_as("write")
class Write(nn.Module):
    """WRITE(h, q) = T·H + (1 − T)·h, so that leaving a value unchanged is easy to learn."""

    def __init__(self, size: int, query: int, *, hidden: int, depth: int):
        super().__init__()
        self.candidate = MLP(size + query, size, hidden=hidden, depth=depth)
        self.gate = MLP(size + query, size, hidden=hidden, depth=depth)

    def forward(
        self, value: Float[Tensor, "*batch size"], query: Float[Tensor, "*batch query"]
    ) -> Float[Tensor, "*batch size"]:
        both = torch.cat([value, query], -1)
        t = torch.sigmoid(self.gate(both))
        return t * torch.sigmoid(self.candidate(both)) + (1 - t) * value
