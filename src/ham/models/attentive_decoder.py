"""Encoder-decoder LSTM with attention (Bahdanau et al., 2014): every encoder state can be looked at."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from ham.models.model import Model, Questions
from ham.models.recurrent import (
    before,
    read_online,
    read_rows,
    remember_by_default,
    undecided,
    within,
)
from ham.ops import Episode, run
from ham.ops.episode import Decoding
from ham.ops.forms import known_as
from ham.tasks import Bits, Codec

AT_ONCE = 16
"""Queries that look back together."""


@known_as("additive attention")
class Attention(nn.Module):
    """Additive attention: the weights are softmax of v · tanh(W s + U h) over the states h."""

    def __init__(self, query: int, states: int, width: int):
        super().__init__()
        self.of_query = nn.Linear(query, width)
        self.of_state = nn.Linear(states, width, bias=False)
        self.score = nn.Linear(width, 1, bias=False)

    def forward(
        self,
        queries: Float[Tensor, "batch time query"],
        states: Float[Tensor, "batch items states"],
        keys: Float[Tensor, "batch items width"],
        usable: Bool[Tensor, "#batch #time items"],
    ) -> Float[Tensor, "batch time states"]:
        """For each query the weighted mean of the usable states; `keys` are `of_state(states)`."""
        both = self.of_query(queries)[:, :, None] + keys[:, None]
        scores = self.score(torch.tanh(both)).squeeze(-1)
        weights = torch.softmax(scores.masked_fill(~usable, -torch.inf), -1)
        return weights @ states


@known_as("lstm+a")
class AttentiveDecoder(Model):
    """The encoder reads the rows in both directions; the decoder looks at all of its states.

    As in Bahdanau et al., symbol t's context is chosen by the decoder's state before it, goes into
    the LSTM together with the symbol before, and again into the output. That order forbids running
    the decoder over all symbols in one call. The other one, context from the state after, was
    measured to train a fifth (40 cells) to a third (24 cells) faster: not enough to leave the paper's.

    With `online` a row is only seen at its own timestep: one LSTM reads them, and its state looks
    back at the states so far.
    """

    baseline = None

    def __init__(
        self, features: int, bits: int, *, cells: int, online: bool = False, codec: Codec | None = None
    ):
        super().__init__()
        self.codec = codec or Bits(bits)
        self.online = online
        states = cells if online else 2 * cells
        self.encoder = nn.LSTM(features, cells, batch_first=True, bidirectional=not online)
        remember_by_default(self.encoder)
        self.attention = Attention(cells, states, cells)
        if not online:
            self.start = nn.Linear(cells, cells)
            self.decoder = nn.LSTMCell(bits + states, cells)
            remember_by_default(self.decoder)
        self.output = nn.Linear(cells + states, bits)

    def networks(self):
        if self.online:
            return self.encoder, self.attention, self.output
        return self.encoder, self.attention, self.start, self.decoder, self.output

    def decoding(self) -> Decoding:
        """The parts that write symbols."""
        return Decoding(self.attention, self.start, self.decoder, self.output)

    def episode(self, questions: Questions) -> Episode:
        asked, symbols, lengths = questions.asked, questions.symbols, questions.lengths
        if self.online:
            states = read_online(self.encoder, questions.inputs[:, :symbols], asked)
            context = self._looking_back(states)
            return undecided(self.output(torch.cat([states, context], -1)), asked)
        states, state, _ = read_rows(self.encoder, questions.inputs, lengths)
        fed = None if questions.targets is None else questions.targets[:, :symbols]
        call = (self.decoding(), state, None, asked, fed, symbols, states, lengths, self.codec)
        return undecided(run("write_symbols", self._write, *call), asked)

    def _write(self, networks, state, cell, asked, targets, symbols, states, lengths, codec) -> Tensor:
        # The backward direction, the last one, ends at the first row.
        h = torch.tanh(self.start(state[:, -1]))
        c = torch.zeros_like(h)
        usable = within(lengths, states.shape[1])[:, None]
        keys = self.attention.of_state(states)
        symbol = state.new_zeros(len(state), self.output.out_features)
        fed = None if targets is None else before(targets).unbind(1)
        outputs, seen = [], []
        for t in range(symbols):
            context = self.attention(h[:, None], states, keys, usable)[:, 0]
            h, c = self.decoder(torch.cat([symbol if fed is None else fed[t], context], -1), (h, c))
            seen.append(torch.cat([h, context], -1))
            if fed is None:
                outputs.append(self.output(seen[-1]))
                symbol = self.codec.read(outputs[-1].detach())
        return self.output(torch.stack(seen, 1)) if fed is not None else torch.stack(outputs, 1)

    def _looking_back(self, states: Float[Tensor, "batch time states"]) -> Float[Tensor, "batch time states"]:
        """Each state's context among the states up to itself; some at a time, to skip most later ones."""
        keys = self.attention.of_state(states)
        contexts = []
        for first in range(0, states.shape[1], AT_ONCE):
            queries = states[:, first : first + AT_ONCE]
            end = first + queries.shape[1]
            so_far = torch.ones(queries.shape[1], end, dtype=torch.bool, device=states.device).tril(first)
            contexts.append(self.attention(queries, states[:, :end], keys[:, :end], so_far[None]))
        return torch.cat(contexts, 1)
