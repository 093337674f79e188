"""The paper's controller: an LSTM whose hidden state is the query."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ham.core.errors import InputError
from ham.core.numbers import is_finite
from ham.ops.forms import known_as


@known_as("lstm cell")
class LSTM(nn.LSTMCell):
    """An LSTM's step whose cells are clipped to [−bound, bound]; with bound 0 it is PyTorch's.

    Its state is the hidden state and the cells.
    """

    def __init__(self, inputs: int, cells: int, *, bound: float = 0.0):
        super().__init__(inputs, cells)
        if not (bound >= 0 and is_finite(bound)):
            raise InputError(f"cell_bound must be finite and not negative, got {bound}")
        self.bound = bound
        with torch.no_grad():
            # Remember by default (Jozefowicz et al., 2015).
            self.bias_ih[cells : 2 * cells] = 1

    def first(self, read: Tensor) -> tuple[Tensor, Tensor]:
        zeros = read.new_zeros(len(read), self.hidden_size)
        return zeros, zeros

    def forward(self, inputs, state=None):
        if not self.bound:
            return super().forward(inputs, state)
        h, c = state or self.first(inputs)
        i, f, g, o = (
            F.linear(inputs, self.weight_ih, self.bias_ih) + F.linear(h, self.weight_hh, self.bias_hh)
        ).chunk(4, -1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        c = c.clamp(-self.bound, self.bound)
        return torch.sigmoid(o) * torch.tanh(c), c
