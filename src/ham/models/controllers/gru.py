"""A GRU (Cho et al., 2014) as the controller: one state, which is the query."""

from __future__ import annotations

from torch import Tensor, nn


class GRU(nn.GRUCell):
    """PyTorch's step; the state is the hidden state alone."""

    def first(self, read: Tensor) -> tuple[Tensor]:
        return (read.new_zeros(len(read), self.hidden_size),)

    def forward(self, inputs, state=None):
        (h,) = state or self.first(inputs)
        return (super().forward(inputs, h),)
