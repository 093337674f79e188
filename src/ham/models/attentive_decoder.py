"""Encoder-decoder LSTM with attention (Bahdanau et al., 2014): every encoder state can be looked at."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from ham.models.model import Model
from ham.models.recurrent import (
    before,
    episode_of,
    read_online,
    read_rows,
    remember_by_default,
    rounded,
    undecided,
    within,
)
from ham.ops import Episode, native_for

AT_ONCE = 16
"""Queries that look back together."""


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

    def __init__(self, features: int, bits: int, *, cells: int, online: bool = False):
        super().__init__()
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

    def engine_sizes(self):
        from ham.ops.native_recurrent import Sizes

        if self.online:
            return None
        return Sizes(self.encoder.input_size, self.output.out_features, self.encoder.hidden_size, True)

    def forward(
        self, inputs, lengths, asked, *, leaves, uniforms=None, targets=None, keep=True, final_tree=False
    ) -> Episode:
        symbols = max(int(asked.max()), 1)
        if self.online:
            states = read_online(self.encoder, inputs[:, :symbols], asked)
            context = self._looking_back(states)
            return undecided(self.output(torch.cat([states, context], -1)), asked)

        if native_for(inputs):
            from ham.ops import native_recurrent

            states, state, _ = native_recurrent.read(list(self.encoder.parameters()), inputs, lengths)
            parts = (self.attention, self.start, self.decoder, self.output)
            written = native_recurrent.decode(
                [parameter for part in parts for parameter in part.parameters()],
                state,
                None,
                asked,
                None if targets is None else targets[:, :symbols],
                symbols=symbols,
                memory=states,
                lengths=lengths,
            )
            return episode_of(written)

        states, (last, _) = read_rows(self.encoder, inputs, lengths)
        # The backward direction ends at the first row.
        h = torch.tanh(self.start(last[1]))
        c = torch.zeros_like(h)
        usable = within(lengths, states.shape[1])[:, None]
        keys = self.attention.of_state(states)
        symbol = inputs.new_zeros(len(inputs), self.output.out_features)
        fed = None if targets is None else before(targets[:, :symbols]).unbind(1)
        outputs, seen = [], []
        for t in range(symbols):
            context = self.attention(h[:, None], states, keys, usable)[:, 0]
            h, c = self.decoder(torch.cat([symbol if fed is None else fed[t], context], -1), (h, c))
            seen.append(torch.cat([h, context], -1))
            if fed is None:
                outputs.append(self.output(seen[-1]))
                symbol = rounded(outputs[-1])
        if fed is not None:
            return undecided(self.output(torch.stack(seen, 1)), asked)
        return undecided(torch.stack(outputs, 1), asked)

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
