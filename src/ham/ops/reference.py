"""The memory's two accesses in plain PyTorch: the definition that every faster engine must match.

SEARCH, WRITE and JOIN run under autograd as they are, so they may be any modules. Only two things are special:
taking nodes out of the tree and putting nodes into it. Autograd's own indexed read has a dense tree as its
gradient, every time. So the tree is one tensor that is changed in place, and so is its gradient on the way back:
an access then costs Θ(log n) in both directions. The price is that accesses form one chain, which the tree's
in-place history keeps in order; even taking marks the tree as changed. Where nothing may be changed in place,
while a program is traced or transformed by `torch.func`, both are the plain indexing that they stand for.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from ham.core.errors import InputError
from ham.core.tree import depth_of, leaf_of, path_to
from ham.ops.episode import log_prob_of
from ham.ops.forms import PLAIN_TENSORS

Cost = Float[Tensor, ""] | None
"""What a penalty adds to the loss; None where there is none."""


def build(
    leaves: Float[Tensor, "batch leaves size"],
    join: Callable[[Tensor], Tensor],
    pull: float | Float[Tensor, "batch 1 1"] = 0.0,
) -> tuple[Float[Tensor, "batch nodes size"], Cost]:
    """The whole tree over given leaves: every inner node is JOIN of its children; and what the pull costs."""
    levels, cost = [leaves], None
    while levels[-1].shape[1] > 1:
        joined, of_level = pulled(join(levels[-1].unflatten(1, (-1, 2)).flatten(2)), pull)
        levels.append(joined)
        cost = total(cost, of_level)
    unused = torch.zeros_like(leaves[:, :1])
    return torch.cat([unused, *reversed(levels)], 1), cost


def pulled(
    joined: Float[Tensor, "*batch size"], pull: float | Float[Tensor, "#*batch 1"]
) -> tuple[Float[Tensor, "*batch size"], Cost]:
    """What JOIN made, and the cost of its pull: `pull`·h²/2 over all values h."""
    if not isinstance(pull, Tensor) and not pull:
        return joined, None
    return _Pull.apply(joined, pull)


def total(*costs: Cost) -> Cost:
    """Their sum; None, where there are none."""
    there = [cost for cost in costs if cost is not None]
    return sum(there[1:], there[0]) if there else None


class _Pull(torch.autograd.Function):
    """Values that go through, and what they cost: one node of the graph, so the gradients of both meet here."""

    @staticmethod
    def forward(ctx, value, weight):
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(value)
        ctx.weight = weight
        return value.view_as(value), (weight * value.square()).sum() / 2

    @staticmethod
    def backward(ctx, gradient, d_cost):
        if d_cost is None:
            return gradient, None
        (value,) = ctx.saved_tensors
        pull = (ctx.weight * d_cost) * value
        return pull if gradient is None else gradient + pull, None


def attend(
    tree: Float[Tensor, "batch nodes size"],
    query: Float[Tensor, "batch query"],
    uniforms: Float[Tensor, "batch depth"],
    search: torch.nn.Module,
) -> tuple[
    Float[Tensor, "batch depth"],
    Bool[Tensor, "batch depth"],
    Int[Tensor, "batch"],
    Float[Tensor, "batch size"],
    Float[Tensor, "batch depth"],
]:
    """Descend from the root; at each node go right iff its uniform is below SEARCH's probability.

    Gives the decisions' logits, the decisions, the leaf and its value, and the decisions' log-probabilities.
    """
    require(uniforms.isfinite().all(), lambda: "uniforms must be finite")
    take = _take if _chained(tree, query, search) else _plain_take
    rows = torch.arange(len(tree), device=tree.device)
    node = torch.ones_like(rows)
    logits, turns = [], []
    for level in range(depth_of(tree.shape[1] // 2)):
        logit = search(torch.cat([take(tree, rows, node), query], -1)).squeeze(-1)
        turn = uniforms[:, level] < torch.sigmoid(logit.detach())
        logits.append(logit)
        turns.append(turn)
        node = 2 * node + turn
    value = take(tree, rows, node)
    if not logits:
        none = query.new_zeros(len(rows), 0)
        return none, none.bool(), node - 1, value, none
    stacked, turned = torch.stack(logits, -1), torch.stack(turns, -1)
    return stacked, turned, leaf_of(turned), value, log_prob_of(stacked, turned)


def update(
    tree: Float[Tensor, "batch nodes size"],
    leaf: Int[Tensor, "batch"],
    query: Float[Tensor, "batch query"],
    active: Bool[Tensor, "batch"] | None,
    write: torch.nn.Module,
    join: torch.nn.Module,
    pull: float = 0.0,
) -> tuple[Float[Tensor, "batch nodes size"], Cost]:
    """The tree with a leaf's value replaced by WRITE of it and its ancestors rejoined; mostly the same tensor.

    Examples that are not `active` keep their tree as it is. Beside it what the pull of the new values costs.
    """
    chained = _chained(tree, query, write, join)
    take, put = (_take, _put) if chained else (_plain_take, _plain_put)
    leaves = tree.shape[1] // 2
    require_one_leaf_each(leaf, tree)
    _require_leaves(leaf if active is None else leaf[active] if chained else leaf.where(active, 0), leaves)
    rows = torch.arange(len(tree), device=tree.device)
    if active is not None and chained:
        rows = active.nonzero().squeeze(-1)
        leaf, query = leaf[rows], query[rows]
    path = path_to(leaf if active is None or chained else leaf.where(active, 0), leaves)
    siblings = path[:, 1:] ^ 1
    beside = take(tree, rows[:, None], siblings)
    values, cost = [write(take(tree, rows, path[:, -1]), query)], None
    weight = pull if chained or active is None or not pull else pull * active[:, None].to(tree.dtype)
    for level in range(siblings.shape[1], 0, -1):
        came_from_right = (path[:, level] & 1).bool()[:, None]
        here, there = values[-1], beside[:, level - 1]
        left = torch.where(came_from_right, there, here)
        right = torch.where(came_from_right, here, there)
        joined, of_node = pulled(join(torch.cat([left, right], -1)), weight)
        values.append(joined)
        cost = total(cost, of_node)
    fresh = torch.stack(values[::-1], 1).to(tree.dtype)
    if active is not None and not chained:
        fresh = torch.where(active[:, None, None], fresh, take(tree, rows[:, None], path))
    return put(tree, rows[:, None], path, fresh), cost


def _chained(tree: Tensor, query: Tensor, *modules: torch.nn.Module) -> bool:
    """Whether the tree can be changed in place."""
    return (
        not torch.compiler.is_compiling()
        and type(tree) in PLAIN_TENSORS
        and type(query) in PLAIN_TENSORS
        and torch._C._functorch.peek_interpreter_stack() is None
        and torch.autograd.forward_ad._current_level < 0
    )


def _plain_take(tree: Tensor, rows: Tensor, nodes: Tensor) -> Tensor:
    return tree[rows, nodes]


def _plain_put(tree: Tensor, rows: Tensor, nodes: Tensor, values: Tensor) -> Tensor:
    return tree.index_put((rows, nodes), values)


def _take(tree: Tensor, rows: Tensor, nodes: Tensor) -> Tensor:
    if torch.is_grad_enabled() and tree.requires_grad:
        return _Take.apply(tree, rows, nodes)[1]
    return tree[rows, nodes]


def _put(tree: Tensor, rows: Tensor, nodes: Tensor, values: Tensor) -> Tensor:
    if torch.is_grad_enabled() and (tree.requires_grad or values.requires_grad):
        return _Put.apply(tree, rows, nodes, values)
    tree[rows, nodes] = values
    return tree


class _Take(torch.autograd.Function):
    """Nodes of the tree, which goes through unchanged: so every access has one successor in the graph."""

    @staticmethod
    def forward(ctx, tree, rows, nodes):
        ctx.mark_dirty(tree)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(rows, nodes)
        ctx.shape, ctx.options = tree.shape, {"dtype": tree.dtype, "device": tree.device}
        return tree, tree[rows, nodes]

    @staticmethod
    @once_differentiable
    def backward(ctx, d_tree, d_values):
        if d_values is not None:
            rows, nodes = ctx.saved_tensors
            if d_tree is None:
                d_tree = torch.zeros(ctx.shape, **ctx.options)
            elif not _is_ours(d_tree, sys.getrefcount(d_tree)):
                d_tree = d_tree.clone(memory_format=torch.contiguous_format)
            d_tree.index_put_((rows, nodes), d_values, accumulate=True)
        return d_tree, None, None


class _Put(torch.autograd.Function):
    """The tree with other nodes. What was there is overwritten: its gradient ends here and goes to what came."""

    @staticmethod
    def forward(ctx, tree, rows, nodes, values):
        ctx.mark_dirty(tree)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(rows, nodes)
        tree[rows, nodes] = values
        return tree

    @staticmethod
    @once_differentiable
    def backward(ctx, d_tree):
        if d_tree is None:
            return None, None, None, None
        rows, nodes = ctx.saved_tensors
        if not _is_ours(d_tree, sys.getrefcount(d_tree)):
            d_tree = d_tree.clone(memory_format=torch.contiguous_format)
        d_values = d_tree[rows, nodes]
        d_tree[rows, nodes] = 0
        return d_tree, None, None, d_values


def _is_ours(gradient: Tensor, references: int) -> bool:
    """Whether nobody else holds a gradient that came to a backward, so that it may be changed in place.

    Autograd itself adds gradients up in place by the same rule.
    """
    return gradient.is_contiguous() and _counts(gradient, references) == _counts_of_our_own()


def _counts(gradient: Tensor, references: int) -> tuple[int, int, int]:
    storage = gradient.untyped_storage()
    uses = gradient._use_count()  # type: ignore[attr-defined]
    return references, uses, torch._C._storage_Use_Count(storage._cdata)


@cache
def _counts_of_our_own() -> tuple[int, int, int]:
    """How often a gradient is counted in a backward when nobody else can hold it: found out on a graph of our own."""
    found: list[tuple[int, int, int]] = []

    class Probe(torch.autograd.Function):
        @staticmethod
        def forward(ctx, value):
            return value.clone()

        @staticmethod
        @once_differentiable
        def backward(ctx, gradient):
            found.append(_counts(gradient, sys.getrefcount(gradient)))
            return torch.zeros_like(gradient)

    with torch.enable_grad(), torch.autograd.set_multithreading_enabled(False):
        value = torch.zeros(2, 2, device="cpu", dtype=torch.float32, requires_grad=True)
        torch.autograd.grad(Probe.apply(Probe.apply(value)).sum(), value)
    return found[-1]


def require_one_leaf_each(leaf: Tensor, tree: Float[Tensor, "batch nodes size"]) -> None:
    """Refuse what indexing would stretch over all examples."""
    if leaf.shape != tree.shape[:1]:
        raise InputError(f"leaf must have shape ({len(tree)},), got {tuple(leaf.shape)}")


def _require_leaves(leaf: Int[Tensor, "*batch"], leaves: int) -> None:
    require(
        ((leaf >= 0) & (leaf < leaves)).all(),
        lambda: f"leaf must be between 0 and {leaves - 1}, got {leaf.min()} … {leaf.max()}",
    )


def require(right: Bool[Tensor, ""], otherwise: Callable[[], str]) -> None:
    """Refuse bad values where they can be looked at without waiting for a device or breaking a trace."""
    if torch.compiler.is_compiling() or type(right) not in PLAIN_TENSORS or right.device.type != "cpu":
        return
    if torch._C._functorch.peek_interpreter_stack() is None and not bool(right):
        raise InputError(otherwise())
