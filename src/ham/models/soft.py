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

from ham.core.errors import InputError
from ham.core.tree import depth_of
from ham.models.memory import HAM, Read, State
from ham.models.transformations import Join
from ham.ops import reference
from ham.ops.episode import Entropy, entropy_of, exploration_of
from ham.ops.forms import known_as


@dataclass(frozen=True)
class SoftRead(Read):
    """A read of the whole memory: `leaf` is the likeliest one, and nothing was decided."""

    probabilities: Float[Tensor, "batch leaves"]


@known_as("soft ham")
class SoftHAM(HAM):
    """HAM that attends to all leaves at once, each with the probability that HAM would access it.

    Every timestep rewrites the whole tree, so a gradient that goes back from tree to tree can grow each time.
    `tree_clip` bounds every component of it, at every timestep; 0 lets it grow.

    Nothing is sampled, and yet a probability that has come near 0 or 1 stays there, right or wrong: its gradient has
    vanished. `exploration` is the weight of an exploration term of the kind `entropy` in the loss, for every decision
    as often as HAM would come to it.
    """

    tree_clip: float = 0.0
    exploration: float = 0.0
    entropy: Entropy = "inverse"

    def episode_options(self) -> dict[str, Any]:
        return {
            **super().episode_options(),
            "soft": True,
            "tree_clip": self.tree_clip,
            "exploration": self.exploration,
            "entropy": self.entropy,
        }

    def init(self, x, lengths=None, leaves=None, places=None) -> State:
        return self._clipped(super().init(x, lengths, leaves, places))

    def empty(self, batch: int, leaves: int) -> State:
        return self._clipped(super().empty(batch, leaves))

    def leaf_probabilities(
        self,
        state: State,
        query: Float[Tensor, "batch query"],
        *,
        active: Bool[Tensor, "batch"] | None = None,
    ) -> Float[Tensor, "batch leaves"]:
        """p(e): the product of the probabilities of all turns on the way to e."""
        inner = state.tree[:, 1 : state.leaves]
        queries = query[:, None].expand(-1, inner.shape[1], -1)
        logits = self.search(torch.cat([inner, queries], -1)).squeeze(-1)
        right = torch.sigmoid(logits)
        levels = [torch.ones_like(query[:, :1])]
        for level in range(depth_of(state.leaves)):
            p = right[:, (1 << level) - 1 : (2 << level) - 1]
            levels.append(torch.stack([levels[-1] * (1 - p), levels[-1] * p], -1).flatten(1))
        *above, leaves = levels
        if self.exploration and logits.requires_grad and above:
            weight = self.exploration * torch.cat(above, 1).detach()
            self._explore(logits, weight if active is None else weight * active[:, None])
        return leaves

    def attend(self, state, query, *, uniforms=None, leaf=None, greedy=None, active=None) -> SoftRead:
        """Read Σ p(e)·h_e; the ways to choose a leaf do not apply."""
        probabilities = self.leaf_probabilities(state, query, active=active)
        value = torch.einsum("be,bed->bd", probabilities, state.tree[:, state.leaves :])
        nothing = query.new_zeros(len(query), 0)
        return SoftRead(probabilities.argmax(-1), value, nothing.bool(), nothing, nothing, probabilities)

    def update(
        self,
        state: State,
        read: Read,
        query: Float[Tensor, "batch query"],
        *,
        active: Bool[Tensor, "batch"] | None = None,
    ) -> State:
        """Write to every leaf in proportion to p(e) and rejoin the whole tree."""
        self._check(state, query)
        if not isinstance(read, SoftRead):
            raise InputError(
                "SoftHAM writes where SoftHAM.attend read; this read is of another kind of memory"
            )
        old = state.tree[:, state.leaves :]
        p = read.probabilities[..., None]
        join: Callable[[Tensor], Tensor] = self.join
        if active is not None:
            taking_part = active[:, None, None].to(p.dtype)
            p = p * taking_part
            if isinstance(join, Join):
                join = partial(join, times=taking_part)
        queries = query[:, None].expand(-1, state.leaves, -1)
        written = p * self.write(old, queries) + (1 - p) * old
        return self._clipped(State(reference.build(written, join)))

    def _explore(self, logits: Float[Tensor, "batch inner"], weight: Float[Tensor, "batch inner"]) -> None:
        """Let the gradient of weighted exploration terms join that of the logits."""
        with torch.enable_grad():
            alone = logits.detach().requires_grad_()
            terms = exploration_of(entropy_of(alone), self.entropy)
        (pull,) = torch.autograd.grad(terms, alone, weight)
        logits.register_hook(lambda gradient: gradient + pull)

    def _clipped(self, state: State) -> State:
        if self.tree_clip and state.tree.requires_grad:
            state.tree.register_hook(lambda gradient: gradient.clamp(-self.tree_clip, self.tree_clip))
        return state
