"""Encoder-decoder LSTM (Sutskever et al., 2014): the whole input goes through one state."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ham.models.model import Model, Questions
from ham.models.recurrent import before, read_online, read_rows, remember_by_default, undecided
from ham.ops import Episode, run
from ham.ops.episode import Decoding
from ham.ops.forms import known_as
from ham.tasks import Bits, Codec


@known_as("lstm")
class EncoderDecoder(Model):
    """One LSTM reads the rows, another one writes the symbols, starting from the first one's state.

    The decoder is fed the symbol before: the right one where `targets` are given (training), its
    own, as the codec of the task reads it (bits, if none is given), where they are not. With `online`, a single LSTM
    answers after each row.
    """

    baseline = None

    def __init__(
        self, features: int, bits: int, *, cells: int, online: bool = False, codec: Codec | None = None
    ):
        super().__init__()
        self.codec = codec or Bits(bits)
        self.online = online
        self.encoder = nn.LSTM(features, cells, batch_first=True)
        remember_by_default(self.encoder)
        if not online:
            self.decoder = nn.LSTM(bits, cells, batch_first=True)
            remember_by_default(self.decoder)
        self.output = nn.Linear(cells, bits)

    def networks(self):
        return (self.encoder, self.output) if self.online else (self.encoder, self.decoder, self.output)

    def decoding(self) -> Decoding:
        """The parts that write symbols."""
        return Decoding(None, None, self.decoder, self.output)

    def episode(self, questions: Questions) -> Episode:
        asked, symbols = questions.asked, questions.symbols
        if self.online:
            states = read_online(self.encoder, questions.inputs[:, :symbols], asked)
            return undecided(self.output(states), asked)
        _, state, cell = read_rows(self.encoder, questions.inputs, questions.lengths)
        fed = None if questions.targets is None else questions.targets[:, :symbols]
        call = (self.decoding(), state, cell, asked, fed, symbols, None, None, self.codec)
        return undecided(run("write_symbols", self._write, *call), asked)

    def _write(self, networks, state, cell, asked, targets, symbols, memory, lengths, codec) -> Tensor:
        last = state.transpose(0, 1).contiguous(), cell.transpose(0, 1).contiguous()
        if targets is not None:
            return self.output(self.decoder(before(targets), last)[0])
        symbol = state.new_zeros(len(state), self.output.out_features)
        outputs = []
        for _ in range(symbols):
            states, last = self.decoder(symbol[:, None], last)
            outputs.append(self.output(states[:, 0]))
            symbol = self.codec.read(outputs[-1].detach())
        return torch.stack(outputs, 1)
