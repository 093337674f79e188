"""Index arithmetic of the complete binary tree that the memory lives in; no learning here.

Nodes are numbered as in a heap: the root is 1, the children of e are 2e and 2e + 1, and leaf i
of n is node n + i. Row 0 of a stored tree is never used, which keeps every formula a shift.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from ham.core.errors import InputError

MOST_LEAVES = 1 << 30
"""More than any machine's memory; node numbers and sizes in bytes stay whole numbers of 64 bits."""


def depth_of(leaves: int) -> int:
    """Decisions on the way from the root to a leaf: log2 of the number of leaves.

    >>> depth_of(1), depth_of(8)
    (0, 3)
    """
    if leaves > MOST_LEAVES:
        raise InputError(f"leaves must be at most {MOST_LEAVES:,}, got {leaves:,}")
    if leaves < 1 or leaves & (leaves - 1):
        raise InputError(
            f"leaves must be a power of two, got {leaves}; "
            f"use ham.core.tree.capacity_for({leaves}) = {capacity_for(leaves)}"
        )
    return leaves.bit_length() - 1


def capacity_for(length: int) -> int:
    """The smallest number of leaves that holds `length` items.

    >>> capacity_for(48), capacity_for(64), capacity_for(0)
    (64, 64, 1)
    """
    return 1 << max(length - 1, 0).bit_length()


def path_to(leaf: Int[Tensor, "*batch"], leaves: int) -> Int[Tensor, "*batch nodes"]:
    """The nodes from the root down to a leaf, both included."""
    depth = depth_of(leaves)
    shifts = torch.arange(depth, -1, -1, device=leaf.device)
    return (leaf + leaves).unsqueeze(-1) >> shifts


def turns_to(leaf: Int[Tensor, "*batch"], leaves: int) -> Bool[Tensor, "*batch depth"]:
    """The decisions that lead from the root to a leaf; True goes right."""
    return (path_to(leaf, leaves)[..., 1:] & 1).bool()


def leaf_of(turns: Bool[Tensor, "*batch depth"]) -> Int[Tensor, "*batch"]:
    """The leaf that the decisions lead to: they are its number in binary, highest bit first."""
    depth = turns.shape[-1]
    weights = 1 << torch.arange(depth - 1, -1, -1, device=turns.device)
    return (turns * weights).sum(-1)
