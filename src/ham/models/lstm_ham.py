"""LSTM+HAM: a controller, the paper's is an LSTM, whose state is the query (the paper's figures 1 to 5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jaxtyping import Int
from torch import Tensor, nn

from ham.core.errors import InputError
from ham.core.tree import depth_of
from ham.models.controllers import controller_of
from ham.models.memory import HAM
from ham.models.model import Model, Questions, Recorder, Start
from ham.models.soft import SoftHAM
from ham.ops import Episode, run
from ham.ops.episode import NO_PENALTIES, Networks, Order, Penalties
from ham.ops.forms import known_as


@known_as("lstm+ham")
class LSTMHAM(Model):
    """The paper's model for sequence tasks.

    Args:
        features, bits: widths of an input row and of an output symbol.
        cells: size l of the controller's state.
        size: width d of the memory's values.
        every: memory accesses per output symbol (η).
        soft: attend softly (DHAM); the parameters are the same.
        controller: one of `ham.models.controllers`, or any module that keeps their contract.
        cell_bound: an LSTM's cells are clipped to [−cell_bound, cell_bound]; 0 is no bound.
        bounds: `join`, `top` and `grid`, as in `HAM`.
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
        controller: str | nn.Module = "lstm",
        cell_bound: float = 0.0,
        **bounds: Any,
    ):
        super().__init__()
        memory = SoftHAM if soft else HAM
        self.memory = memory(features, cells, size, hidden=hidden, depth=depth, **bounds)
        self.controller = (
            controller_of(controller, size, cells, bound=cell_bound)
            if isinstance(controller, str)
            else controller
        )
        self.output = nn.Linear(cells, bits)
        self.baseline = nn.Linear(cells, 1)
        self.every = every
        self.soft = soft

    def decisions(self, leaves):
        return 0 if self.soft else depth_of(leaves)

    def networks(self):
        memory = self.memory
        return Networks(
            memory, memory.embed, memory.join, memory.search, memory.write, self.controller, self.output
        )

    def episode(
        self,
        questions: Questions,
        places: Int[Tensor, "slots"] | None = None,
        start: Start | None = None,
        penalties: Penalties = NO_PENALTIES,
    ) -> Episode:
        """As `Model.episode`.

        `places` are the leaves of the input rows, the same for all examples, in ascending order; `start` is what
        the controller starts from instead of zeros. What `penalties` cost is in the episode, for the loss.
        """
        if start is not None and not isinstance(self.controller, nn.LSTMCell):
            raise InputError(f"start is for an LSTM controller, not for {type(self.controller).__name__}")
        order = Order(
            questions.inputs,
            questions.lengths,
            questions.asked * self.every,
            questions.uniforms,
            questions.leaves,
            questions.symbols * self.every,
            every=self.every,
            keep=questions.keep,
            final_tree=questions.final_tree,
            places=places,
            start=start,
            penalties=penalties,
        )
        return run("episode", self._step_by_step, self.networks(), order, self.engine_options())

    def engine_options(self):
        return {**self.memory.episode_options(), "cell_bound": getattr(self.controller, "bound", 0.0)}

    def _step_by_step(self, networks: Networks, order: Order, options: Mapping[str, Any]) -> Episode:
        inputs, uniforms, durations = order.inputs, order.uniforms, order.durations
        penalties = order.penalties
        state = self.memory.init(inputs, order.lengths, order.leaves, order.places, penalties=penalties)
        driver: Any = self.controller
        drive = order.start or driver.first(inputs)
        # Nothing but the final tree knows of an example's last update.
        updates = durations if order.final_tree else durations - 1
        record = Recorder(durations)
        for t in range(order.timesteps):
            sampled, query = None if uniforms is None else uniforms[:, t], drive[0]
            read = self.memory.attend(
                state, query, uniforms=sampled, greedy=True, active=t < durations, penalties=penalties
            )
            record.reads.append(read)
            record.queries.append(query)
            drive = driver(read.value, drive)
            query = drive[0]
            if (t + 1) % self.every == 0:
                record.outputs.append(self.output(query))
            state = self.memory.update(state, read, query, active=t < updates, penalties=penalties)
        return record.episode(self.every, state.tree if order.final_tree else None, state.pull)
