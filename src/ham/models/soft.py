"""Soft attention (the paper's appendix, DHAM): every leaf is read and written in proportion.

Fully differentiable and Θ(n) a timestep. It has the parameters and the interface of `HAM`, so
weights trained soft can be run hard and the other way round.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ham.core.errors import InputError
from ham.core.tree import depth_of
from ham.models.memory import HAM, Read, State, check_active
from ham.ops import reference
from ham.ops.episode import NO_PENALTIES, Penalties, entropy_of, exploration_of
from ham.ops.forms import known_as


@dataclass(frozen=True, repr=False)
class SoftRead(Read):
    """A read of the whole memory: `leaf` is the likeliest one, and nothing was decided."""

    probabilities: Float[Tensor, "batch leaves"]
    exploration: Float[Tensor, ""] | None = None
    """What the exploration terms of this access cost, if there are any: a part of the loss."""


@known_as("soft ham")
class SoftHAM(HAM):
    """HAM that attends to all leaves at once, each with the probability that HAM would access it."""

    def episode_options(self) -> dict[str, Any]:
        return {**super().episode_options(), "soft": True}

    def init(self, x, lengths=None, leaves=None, places=None, *, penalties=NO_PENALTIES) -> State:
        return _clipped(super().init(x, lengths, leaves, places, penalties=penalties), penalties)

    def empty(self, batch: int, leaves: int, *, penalties: Penalties = NO_PENALTIES) -> State:
        return _clipped(super().empty(batch, leaves, penalties=penalties), penalties)

    def leaf_probabilities(
        self, state: State, query: Float[Tensor, "batch query"]
    ) -> Float[Tensor, "batch leaves"]:
        """p(e): the product of the probabilities of all turns on the way to e."""
        return self._descend(state, query, None, NO_PENALTIES)[0]

    def _descend(
        self,
        state: State,
        query: Float[Tensor, "batch query"],
        active: Bool[Tensor, "batch"] | None,
        penalties: Penalties,
    ) -> tuple[Float[Tensor, "batch leaves"], Float[Tensor, ""] | None]:
        """The probabilities of all leaves, and what the exploration terms of all turns cost."""
        inner = state.tree[:, 1 : state.leaves]
        queries = query[:, None].expand(-1, inner.shape[1], -1)
        logits = self.search(torch.cat([inner, queries], -1)).squeeze(-1)
        cost = None
        if penalties.exploration and state.leaves > 1:
            with torch.no_grad():
                weight = penalties.exploration * torch.cat(
                    _levels(torch.sigmoid(logits), state.leaves)[:-1], 1
                )
                weight = weight if active is None else weight * active[:, None]
            logits, cost = _Explore.apply(logits, weight, penalties.entropy)
        return _levels(torch.sigmoid(logits), state.leaves)[-1], cost

    def attend(
        self,
        state,
        query,
        *,
        uniforms=None,
        leaf=None,
        greedy=None,
        active=None,
        penalties: Penalties = NO_PENALTIES,
    ) -> SoftRead:
        """Read Σ p(e)·h_e; the ways to choose a leaf do not apply."""
        self._check(state, query)
        check_active(active, len(query))
        probabilities, cost = self._descend(state, query, active, penalties)
        value = torch.einsum("be,bed->bd", probabilities, state.tree[:, state.leaves :])
        nothing = query.new_zeros(len(query), 0)
        return SoftRead(
            probabilities.argmax(-1), value, nothing.bool(), nothing, nothing, probabilities, cost
        )

    def update(self, state, read, query, *, active=None, penalties=NO_PENALTIES) -> State:
        """Write to every leaf in proportion to p(e) and rejoin the whole tree."""
        self._check(state, query)
        if not isinstance(read, SoftRead):
            raise InputError(
                "SoftHAM writes where SoftHAM.attend read; this read is of another kind of memory"
            )
        check_active(active, len(query))
        if read.probabilities.shape != (shape := (len(query), state.leaves)):
            raise InputError(
                f"the read must be of {shape[0]} examples and {shape[1]} leaves, "
                f"got {tuple(read.probabilities.shape)}"
            )
        old = state.tree[:, state.leaves :]
        p = read.probabilities[..., None]
        pull: float | Tensor = penalties.pull
        if active is not None:
            taking_part = active[:, None, None].to(p.dtype)
            p = p * taking_part
            pull = pull and pull * taking_part
        queries = query[:, None].expand(-1, state.leaves, -1)
        written = p * self.write(old, queries) + (1 - p) * old
        tree, cost = reference.build(written, self.join, pull)
        return _clipped(State(tree, reference.total(state.pull, cost)), penalties)


def _levels(right: Float[Tensor, "batch inner"], leaves: int) -> list[Tensor]:
    """The probability of coming to each node, level by level, from that of going right at each inner one."""
    levels = [right.new_ones(len(right), 1)]
    for level in range(depth_of(leaves)):
        p = right[:, (1 << level) - 1 : (2 << level) - 1]
        levels.append(torch.stack([levels[-1] * (1 - p), levels[-1] * p], -1).flatten(1))
    return levels


def _clipped(state: State, penalties: Penalties) -> State:
    """The state, whose tree's gradient has no component beyond what the penalties say."""
    if (most := penalties.tree_clip) and state.tree.requires_grad:
        state.tree.register_hook(lambda gradient: gradient.clamp(-most, most))
    return state


class _Explore(torch.autograd.Function):
    """Logits that go through, and what their weighted exploration terms cost; the gradients of both meet here."""

    @staticmethod
    def forward(ctx, logits, weight, entropy):
        ctx.set_materialize_grads(False)
        with torch.enable_grad():
            alone = logits.detach().requires_grad_()
            terms = exploration_of(entropy_of(alone), entropy)
        (pull,) = torch.autograd.grad(terms, alone, weight)
        ctx.save_for_backward(pull)
        return logits.view_as(logits), (weight * terms.detach()).sum()

    @staticmethod
    def backward(ctx, gradient, d_cost):
        if d_cost is None:
            return gradient, None, None
        (pull,) = ctx.saved_tensors
        pull = pull * d_cost
        return pull if gradient is None else gradient + pull, None, None
