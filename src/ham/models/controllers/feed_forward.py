"""A controller without memory of its own: all that it knows of the past is in the tree."""

from __future__ import annotations

import torch
from torch import Tensor

from ham.models.transformations import MLP


class FeedForward(MLP):
    """The query is tanh of two layers of what was read last."""

    def __init__(self, inputs: int, cells: int):
        super().__init__(inputs, cells, hidden=cells, depth=2)
        self.cells = cells

    def first(self, read: Tensor) -> tuple[Tensor]:
        return (read.new_zeros(len(read), self.cells),)

    def forward(self, inputs, state=None):
        return (torch.tanh(super().forward(inputs)),)
