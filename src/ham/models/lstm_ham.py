"""LSTM+HAM: an LSTM controller whose hidden state is the query (the paper's figures 1 to 5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from ham.core.tree import depth_of
from ham.models.memory import HAM
from ham.models.model import Model, Recorder, room_for
from ham.models.soft import SoftHAM
from ham.ops import Episode, run
from ham.ops.episode import Networks, Order
from ham.ops.forms import known_as


@known_as("lstm+ham")
class LSTMHAM(Model):
    """The paper's model for sequence tasks.

    Args:
        features, bits: widths of an input row and of an output symbol.
        cells: size l of the LSTM controller.
        size: width d of the memory's values.
        every: memory accesses per output symbol (η).
        soft: attend softly (DHAM); the parameters are the same.
    """

    def __init__(
        self,
        features: int,
        bits: int,
        *,
        cells: int = 20,
        size: int = 20,
        hidden: int = 20,
        depth: int = 2,
        every: int = 1,
        soft: bool = False,
    ):
        super().__init__()
        memory = SoftHAM if soft else HAM
        self.memory = memory(features, cells, size, hidden=hidden, depth=depth)
        self.controller = nn.LSTMCell(size, cells)
        self.output = nn.Linear(cells, bits)
        self.baseline = nn.Linear(cells, 1)
        self.every = every
        self.soft = soft
        with torch.no_grad():
            # Remember by default (Jozefowicz et al., 2015).
            self.controller.bias_ih[cells : 2 * cells] = 1

    def decisions(self, leaves):
        return 0 if self.soft else depth_of(leaves)

    def networks(self):
        memory = self.memory
        return Networks(
            memory, memory.embed, memory.join, memory.search, memory.write, self.controller, self.output
        )

    def forward(
        self,
        inputs,
        lengths,
        asked,
        *,
        leaves,
        uniforms=None,
        targets=None,
        keep=True,
        final_tree=False,
        symbols=None,
    ) -> Episode:
        timesteps = room_for(asked, symbols) * self.every
        durations = asked * self.every
        order = Order(inputs, lengths, durations, uniforms, leaves, timesteps, self.every, keep, final_tree)
        return run("episode", self._step_by_step, self.networks(), order, self.memory.episode_options())

    def _step_by_step(self, networks: Networks, order: Order, options: Mapping[str, Any]) -> Episode:
        inputs, uniforms, durations = order.inputs, order.uniforms, order.durations
        state = self.memory.init(inputs, order.lengths, order.leaves)
        h = c = inputs.new_zeros(len(inputs), self.controller.hidden_size)
        # Nothing but the final tree knows of an example's last update.
        updates = durations if order.final_tree else durations - 1
        record = Recorder(durations)
        for t in range(order.timesteps):
            sampled = None if uniforms is None else uniforms[:, t]
            read = self.memory.attend(state, h, uniforms=sampled, greedy=True, active=t < durations)
            record.reads.append(read)
            record.queries.append(h)
            h, c = self.controller(read.value, (h, c))
            if (t + 1) % self.every == 0:
                record.outputs.append(self.output(h))
            state = self.memory.update(state, read, h, active=t < updates)
        return record.episode(self.every, state.tree if order.final_tree else None)
