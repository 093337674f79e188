"""Soft attention (the paper's appendix, DHAM): every leaf is read and written in proportion.

Fully differentiable and Θ(n) a timestep. It has the parameters and the interface of `HAM`, so
weights trained soft can be run hard and the other way round.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ham.nn.memory import HAM, Read, State
from ham.ops import reference
from ham.tree import depth_of


@dataclass(frozen=True)
class SoftRead(Read):
    """A read of the whole memory: `leaf` is the likeliest one, and nothing was decided."""

    probabilities: Float[Tensor, "batch leaves"]


class SoftHAM(HAM):
    """HAM that attends to all leaves at once, each with the probability that HAM would access it.

    Every timestep rewrites the whole tree, so a gradient that goes back from tree to tree can grow each time.
    `tree_clip` bounds every component of it, at every timestep; 0 lets it grow.
    """

    tree_clip: float = 0.0

    def episode_options(self) -> dict[str, Any]:
        return {**super().episode_options(), "soft": True, "tree_clip": self.tree_clip}

    def init(self, x, lengths=None, leaves=None) -> State:
        return self._clipped(super().init(x, lengths, leaves))

    def empty(self, batch: int, leaves: int) -> State:
        return self._clipped(super().empty(batch, leaves))

    def leaf_probabilities(
        self, state: State, query: Float[Tensor, "batch query"]
    ) -> Float[Tensor, "batch leaves"]:
        """p(e): the product of the probabilities of all turns on the way to e."""
        inner = state.tree[:, 1 : state.leaves]
        queries = query[:, None].expand(-1, inner.shape[1], -1)
        right = torch.sigmoid(self.search(torch.cat([inner, queries], -1)).squeeze(-1))
        reach = torch.ones_like(query[:, :1])
        for level in range(depth_of(state.leaves)):
            p = right[:, (1 << level) - 1 : (2 << level) - 1]
            reach = torch.stack([reach * (1 - p), reach * p], -1).flatten(1)
        return reach

    def attend(self, state, query, *, uniforms=None, leaf=None, greedy=None) -> SoftRead:
        """Read Σ p(e)·h_e; the ways to choose a leaf do not apply."""
        probabilities = self.leaf_probabilities(state, query)
        value = torch.einsum("be,bed->bd", probabilities, state.tree[:, state.leaves :])
        nothing = query.new_zeros(len(query), 0)
        return SoftRead(probabilities.argmax(-1), value, nothing.bool(), nothing, probabilities)

    def update(
        self,
        state: State,
        read: Read,
        query: Float[Tensor, "batch query"],
        *,
        active: Bool[Tensor, "batch"] | None = None,
    ) -> State:
        """Write to every leaf in proportion to p(e) and rejoin the whole tree."""
        assert isinstance(read, SoftRead)
        old = state.tree[:, state.leaves :]
        p = read.probabilities[..., None]
        join: Callable[[Tensor], Tensor] = self.join
        if active is not None:
            taking_part = active[:, None, None].to(p.dtype)
            p = p * taking_part
            join = partial(self.join, times=taking_part)
        queries = query[:, None].expand(-1, state.leaves, -1)
        written = p * self.write(old, queries) + (1 - p) * old
        return self._clipped(State(reference.build(written, join)))

    def _clipped(self, state: State) -> State:
        if self.tree_clip and state.tree.requires_grad:
            state.tree.register_hook(lambda gradient: gradient.clamp(-self.tree_clip, self.tree_clip))
        return state
