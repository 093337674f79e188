"""The memory's two accesses in plain PyTorch: the definition that every faster engine must match.

The tree is one tensor that is updated in place, and its gradient is one tensor that is updated
in place on the way back, so an access costs Θ(log n) in both directions. Autograd's own indexed
read would not: its gradient is a dense tree for every access. The price is that accesses form
one chain, which the tree's in-place history keeps in order; both functions therefore mark it as
changed, even `attend`, which only reads. Another price: a gradient that is asked for with respect
to the tree between two accesses is the storage that the accesses before go on to change.

Inside, each function keeps a small autograd graph over the nodes of one path.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from ham.core.tree import depth_of, leaf_of, path_to


def build(
    leaves: Float[Tensor, "batch leaves size"], join: Callable[[Tensor], Tensor]
) -> Float[Tensor, "batch nodes size"]:
    """The whole tree over given leaves: every inner node is JOIN of its children."""
    levels = [leaves]
    while levels[-1].shape[1] > 1:
        levels.append(join(levels[-1].unflatten(1, (-1, 2)).flatten(2)))
    unused = torch.zeros_like(leaves[:, :1])
    return torch.cat([unused, *reversed(levels)], 1)


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
]:
    """Descend from the root; at each node go right iff its uniform is below SEARCH's probability.

    Gives the decisions' logits, the decisions, the leaf and its value.
    """
    _, *read = _Attend.apply(tree, query, uniforms, search, *search.parameters())
    return tuple(read)


def update(
    tree: Float[Tensor, "batch nodes size"],
    leaf: Int[Tensor, "batch"],
    query: Float[Tensor, "batch query"],
    active: Bool[Tensor, "batch"] | None,
    write: torch.nn.Module,
    join: torch.nn.Module,
) -> None:
    """Replace a leaf's value by WRITE of it and rejoin its ancestors, in place.

    Examples that are not `active` keep their tree as it is.
    """
    _Update.apply(tree, leaf, query, active, write, join, *write.parameters(), *join.parameters())


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tree, query, uniforms, search, *parameters):
        ctx.mark_dirty(tree)
        ctx.set_materialize_grads(False)
        rows = torch.arange(len(tree), device=tree.device)
        node = torch.ones_like(rows)
        nodes, values, logits, turns = [], [], [], []
        with torch.enable_grad():
            local_query = query.detach().requires_grad_()
            for level in range(depth_of(tree.shape[1] // 2)):
                value = tree[rows, node].detach().requires_grad_()
                logit = search(torch.cat([value, local_query], -1)).squeeze(-1)
                turn = uniforms[:, level] < torch.sigmoid(logit.detach())
                nodes.append(node)
                values.append(value)
                logits.append(logit)
                turns.append(turn)
                node = 2 * node + turn
            ctx.logits = torch.stack(logits, -1) if logits else query.new_zeros(len(rows), 0)
        ctx.local = [*values, local_query, *parameters]
        ctx.rows, ctx.nodes, ctx.leaf_node = rows, nodes, node
        ctx.shape, ctx.chain = tree.shape, tree.data_ptr()
        turned = torch.stack(turns, -1) if turns else uniforms.new_zeros(len(rows), 0, dtype=torch.bool)
        leaf = leaf_of(turned)
        ctx.mark_non_differentiable(turned, leaf)
        return tree, ctx.logits.detach(), turned, leaf, tree[rows, node]

    @staticmethod
    @once_differentiable
    def backward(ctx, tree_gradient, logits_gradient, _turns, _leaf, value_gradient):
        if tree_gradient is None:
            tree_gradient = ctx.logits.new_zeros(ctx.shape)
            tree_gradient.chain = ctx.chain
        else:
            tree_gradient = _own(ctx, tree_gradient)
        if value_gradient is not None:
            tree_gradient[ctx.rows, ctx.leaf_node] += value_gradient
        if logits_gradient is None or not ctx.nodes:
            return tree_gradient, *[None] * (3 + len(ctx.local) - 1 - len(ctx.nodes))
        *values, query, parameters = _local_gradients(
            ctx, [ctx.logits], [logits_gradient], len(ctx.nodes) + 1
        )
        for node, gradient in zip(ctx.nodes, values, strict=True):
            tree_gradient[ctx.rows, node] += gradient
        return tree_gradient, query, None, None, *parameters


class _Update(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tree, leaf, query, active, write, join, *parameters):
        ctx.mark_dirty(tree)
        ctx.set_materialize_grads(False)
        rows = torch.arange(len(tree), device=tree.device) if active is None else active.nonzero().squeeze(-1)
        path = path_to(leaf[rows], tree.shape[1] // 2)
        siblings = path[:, 1:] ^ 1
        rows_of = rows[:, None]
        with torch.enable_grad():
            old = tree[rows, path[:, -1]].detach().requires_grad_()
            beside = tree[rows_of, siblings].detach().requires_grad_()
            local_query = query[rows].detach().requires_grad_()
            values = [write(old, local_query)]
            for level in range(siblings.shape[1], 0, -1):
                came_from_right = (path[:, level] & 1).bool()[:, None]
                here, there = values[-1], beside[:, level - 1]
                left, right = (
                    torch.where(came_from_right, there, here),
                    torch.where(came_from_right, here, there),
                )
                values.append(join(torch.cat([left, right], -1)))
            ctx.values = torch.stack(values[::-1], 1)
        ctx.local = [old, beside, local_query, *parameters]
        ctx.rows, ctx.path, ctx.siblings = rows, path, siblings
        ctx.batch, ctx.chain = len(tree), tree.data_ptr()
        tree[rows_of, path] = ctx.values.detach()
        return tree

    @staticmethod
    @once_differentiable
    def backward(ctx, tree_gradient):
        if tree_gradient is None:
            return (None,) * (6 + len(ctx.local) - 3)
        tree_gradient = _own(ctx, tree_gradient)
        rows_of = ctx.rows[:, None]
        # The values on the path were overwritten: their gradient ends here and goes to what made them.
        above = tree_gradient[rows_of, ctx.path]
        tree_gradient[rows_of, ctx.path] = 0
        old, beside, query, parameters = _local_gradients(ctx, [ctx.values], [above], 3)
        tree_gradient[ctx.rows, ctx.path[:, -1]] += old
        tree_gradient[rows_of, ctx.siblings] += beside
        whole_query = query.new_zeros(ctx.batch, query.shape[-1])
        whole_query[ctx.rows] = query
        return tree_gradient, None, whole_query, None, None, None, *parameters


def _own(ctx, tree_gradient: Tensor) -> Tensor:
    """The gradient tree of this chain of accesses, which alone may be changed in place.

    What comes from outside is copied once: it may be someone else's, or not have storage of its own.
    """
    if getattr(tree_gradient, "chain", None) != ctx.chain:
        tree_gradient = tree_gradient.clone(memory_format=torch.contiguous_format)
        tree_gradient.chain = ctx.chain  # type: ignore[attr-defined]
    return tree_gradient


def _local_gradients(
    ctx, outputs: Sequence[Tensor], gradients: Sequence[Tensor], before_parameters: int
) -> tuple:
    """Gradients of the path's own graph: each local input's, then the parameters' as one list."""
    wanted = [tensor for tensor in ctx.local if tensor.requires_grad]
    found = iter(
        torch.autograd.grad(
            outputs, wanted, gradients, retain_graph=True, allow_unused=True, materialize_grads=False
        )
    )
    every = [next(found) if tensor.requires_grad else None for tensor in ctx.local]
    every[:before_parameters] = [
        torch.zeros_like(tensor) if gradient is None else gradient
        for tensor, gradient in zip(ctx.local[:before_parameters], every, strict=False)
    ]
    return *every[:before_parameters], every[before_parameters:]
