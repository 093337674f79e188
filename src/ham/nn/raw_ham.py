"""Raw HAM: the memory alone, driven by the operations themselves (the paper's section 3.3)."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from ham.nn.memory import HAM
from ham.nn.mlp import MLP
from ham.nn.model import Model, Recorder
from ham.nn.soft import SoftHAM
from ham.ops import Episode, native_for
from ham.tree import depth_of


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

    def engine_sizes(self):
        from ham.ops import native

        return None if self.soft else native.raw_ham_sizes(self._engine_parameters())

    def _engine_parameters(self) -> list[Tensor]:
        return [*self.memory.parameters(), *self.output.parameters()]

    def engine_options(self):
        return self.memory.episode_options()

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
    ) -> Episode:
        timesteps = max(int(asked.max()), 1)
        if native_for(inputs):
            from ham.ops import native

            return Episode(
                *native.raw_ham_episode(
                    self._engine_parameters(),
                    inputs,
                    asked,
                    None if self.soft else uniforms,
                    leaves=leaves,
                    timesteps=timesteps,
                    keep=keep,
                    final_tree=final_tree,
                    **self.engine_options(),
                )
            )

        state = self.memory.empty(len(inputs), leaves)
        # Nothing but the final tree knows of an example's last update.
        updates = asked if final_tree else asked - 1
        record = Recorder(asked)
        for t in range(timesteps):
            x = inputs[:, t]
            sampled = None if uniforms is None else uniforms[:, t]
            read = self.memory.attend(state, x, uniforms=sampled, greedy=True, active=t < asked)
            record.reads.append(read)
            record.queries.append(x)
            record.outputs.append(self.output(read.value))
            state = self.memory.update(state, read, x, active=t < updates)
        return record.episode(1, state.tree if final_tree else None)
