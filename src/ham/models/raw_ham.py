"""Raw HAM: the memory alone, driven by the operations themselves (the paper's section 3.3)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import nn

from ham.core.tree import depth_of
from ham.models.memory import HAM
from ham.models.model import Beforehand, Model, Questions, Recorder
from ham.models.soft import SoftHAM
from ham.models.transformations import MLP
from ham.ops import Episode, run
from ham.ops.episode import NO_PENALTIES, Networks, Order, Penalties, Stock
from ham.ops.forms import known_as


@known_as("raw-ham")
class RawHAM(Model):
    """A data structure: at timestep t the row x_t is the query, and the output an MLP of what was read.

    The memory starts with zeros in all leaves. Arguments as in `LSTMHAM`.
    """

    def __init__(
        self,
        features: int,
        bits: int,
        *,
        size: int = 20,
        hidden: int = 20,
        depth: int = 2,
        soft: bool = False,
        **bounds: Any,
    ):
        super().__init__()
        memory = SoftHAM if soft else HAM
        self.memory = memory(features, features, size, hidden=hidden, depth=depth, **bounds)
        # The memory starts empty: there is nothing to embed.
        del self.memory.embed
        self.output = MLP(size, bits, hidden=hidden, depth=depth)
        self.baseline = nn.Linear(features, 1)
        self.soft = soft

    def decisions(self, leaves):
        return 0 if self.soft else depth_of(leaves)

    def networks(self):
        memory = self.memory
        return Networks(memory, None, memory.join, memory.search, memory.write, None, self.output)

    def episode(
        self,
        questions: Questions,
        penalties: Penalties = NO_PENALTIES,
        beforehand: Beforehand | None = None,
    ) -> Episode:
        """As `Model.episode`; `beforehand` is what the memory has seen before."""
        order = Order(
            questions.inputs,
            None,
            questions.asked,
            questions.uniforms,
            questions.leaves,
            questions.symbols,
            keep=questions.keep,
            final_tree=questions.final_tree,
            penalties=penalties,
            stock=self.stock_after(beforehand) if beforehand else None,
        )
        return run("episode", self._step_by_step, self.networks(), order, self.engine_options())

    def stock_after(self, beforehand: Beforehand) -> Stock:
        """What the leaves hold after all that was done to them; no gradient goes back through it."""
        rows, done, ends = beforehand
        with torch.no_grad():
            leaves = rows.new_zeros(len(rows), self.memory.size)
            for number, operation in enumerate(rows.unbind(1)):
                leaves = torch.where(done[:, None] > number, self.memory.write(leaves, operation), leaves)
        return Stock(leaves, ends)

    def engine_options(self):
        return self.memory.episode_options()

    def _step_by_step(self, networks: Networks, order: Order, options: Mapping[str, Any]) -> Episode:
        inputs, asked, penalties = order.inputs, order.durations, order.penalties
        begin = self.memory.empty if order.stock is None else partial(self.memory.stocked, stock=order.stock)
        state = begin(len(inputs), order.leaves, penalties=penalties)
        # Nothing but the final tree knows of an example's last update.
        updates = asked if order.final_tree else asked - 1
        record = Recorder(asked)
        for t in range(order.timesteps):
            x = inputs[:, t]
            sampled = None if order.uniforms is None else order.uniforms[:, t]
            read = self.memory.attend(
                state, x, uniforms=sampled, greedy=True, active=t < asked, penalties=penalties
            )
            record.reads.append(read)
            record.queries.append(x)
            record.outputs.append(self.output(read.value))
            state = self.memory.update(state, read, x, active=t < updates, penalties=penalties)
        return record.episode(1, state.tree if order.final_tree else None, state.pull)
