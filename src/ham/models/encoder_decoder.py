"""Encoder-decoder LSTM (Sutskever et al., 2014): the whole input goes through one state."""

from __future__ import annotations

import torch
from torch import nn

from ham.models.model import Model
from ham.models.recurrent import (
    before,
    episode_of,
    read_online,
    read_rows,
    remember_by_default,
    rounded,
    undecided,
)
from ham.ops import Episode, native_for


class EncoderDecoder(Model):
    """One LSTM reads the rows, another one writes the symbols, starting from the first one's state.

    The decoder is fed the symbol before: the right one where `targets` are given (training), its
    own, rounded, where they are not. With `online`, a single LSTM answers after each row.
    """

    baseline = None

    def __init__(self, features: int, bits: int, *, cells: int, online: bool = False):
        super().__init__()
        self.online = online
        self.encoder = nn.LSTM(features, cells, batch_first=True)
        remember_by_default(self.encoder)
        if not online:
            self.decoder = nn.LSTM(bits, cells, batch_first=True)
            remember_by_default(self.decoder)
        self.output = nn.Linear(cells, bits)

    def engine_sizes(self):
        from ham.ops.native_recurrent import Sizes

        if self.online:
            return None
        return Sizes(self.encoder.input_size, self.output.out_features, self.encoder.hidden_size, False)

    def forward(
        self, inputs, lengths, asked, *, leaves, uniforms=None, targets=None, keep=True, final_tree=False
    ) -> Episode:
        symbols = max(int(asked.max()), 1)
        if self.online:
            states = read_online(self.encoder, inputs[:, :symbols], asked)
            return undecided(self.output(states), asked)

        if native_for(inputs):
            from ham.ops import native_recurrent

            _, state, cell = native_recurrent.read(list(self.encoder.parameters()), inputs, lengths)
            written = native_recurrent.decode(
                [*self.decoder.parameters(), *self.output.parameters()],
                state,
                cell,
                asked,
                None if targets is None else targets[:, :symbols],
                symbols=symbols,
            )
            return episode_of(written)

        _, last = read_rows(self.encoder, inputs, lengths)
        if targets is not None:
            states, _ = self.decoder(before(targets[:, :symbols]), last)
            return undecided(self.output(states), asked)

        symbol = inputs.new_zeros(len(inputs), self.output.out_features)
        outputs = []
        for _ in range(symbols):
            states, last = self.decoder(symbol[:, None], last)
            outputs.append(self.output(states[:, 0]))
            symbol = rounded(outputs[-1])
        return undecided(torch.stack(outputs, 1), asked)
