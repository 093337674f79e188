"""Single accesses by the C++ engine: csrc/binding.cpp has the operations and their gradients.

Here is what PyTorch has to know of them to trace a program: the shapes of what they give.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ham.core.errors import InputError
from ham.core.tree import depth_of
from ham.ops.native.layout import JOINS
from ham.ops.native.library import when_loaded

LANES = 16
"""Examples that the engine runs side by side."""
REFUSAL = "ham: "
"""How an error of the engine begins that is the caller's."""


def attend(
    tree: Tensor, query: Tensor, uniforms: Tensor, search: list[Tensor]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """One descent of every example, as `reference.attend`; SEARCH is given by its parameters."""
    try:
        return torch.ops.ham.attend_.default(tree, query, uniforms, search)
    except ValueError as error:
        raise refusal(error) from None


def update(
    tree: Tensor,
    leaf: Tensor,
    query: Tensor,
    active: Tensor | None,
    networks: list[Tensor],
    join: str = "rectified",
    top: float = 0.0,
    grid: int = 0,
) -> Tensor:
    """One write and the joins above it, in place, as `reference.update`.

    WRITE and JOIN are given by their parameters: of the candidate, the gate, and JOIN. The rest is as in `HAM`.
    """
    form = (JOINS.index(join), top, float(grid))
    try:
        torch.ops.ham.update_.default(tree, leaf, query, active, networks, *form)
    except ValueError as error:
        raise refusal(error) from None
    return tree


def refusal(error: ValueError) -> ValueError:
    """Errors of the engine about what it was given are errors of the caller."""
    text = str(error).splitlines()[0]
    return InputError(text.removeprefix(REFUSAL)) if text.startswith(REFUSAL) else error


def register() -> None:
    """Tell PyTorch the shapes of what the operations give; Given in csrc/binding.cpp lays them out."""

    @torch.library.register_fake("ham::attend_")
    def _(tree, query, uniforms, search):
        return _reading(tree, uniforms)

    @torch.library.register_fake("ham::update_")
    def _(tree, leaf, query, active, networks, join, top, grid):
        return None

    @torch.library.register_fake("ham::attend_forward")
    def _(tree, query, uniforms, search, taped):
        hidden = search[0].shape[0] if len(search) == 4 else 0
        inputs, width = tree.shape[2] + query.shape[1], tree.shape[2]
        rows = 2 + inputs + uniforms.shape[1] * (width + hidden)
        return *_reading(tree, uniforms), _tape(tree, rows, taped)

    @torch.library.register_fake("ham::update_forward")
    def _(tree, leaf, query, active, networks, join, top, grid, taped):
        highway = JOINS[join] == "highway"
        hidden = networks[0].shape[0] if len(networks) == (20 if highway else 12) else 0
        inputs, width = tree.shape[2] + query.shape[1], tree.shape[2]
        joins = 3 if highway else 1
        made = joins if highway or grid or JOINS[join] == "normalised" else 0
        of_a_level = (3 + made) * width + joins * hidden
        rows = 2 + inputs + 2 * hidden + 2 * width + depth_of(int(tree.shape[1]) // 2) * of_a_level
        return _tape(tree, rows, taped)

    @torch.library.register_fake("ham::attend_backward")
    def _(d_tree, d_logits, d_value, tape, search, query):
        return _gradients(d_tree, search, query)

    @torch.library.register_fake("ham::update_backward")
    def _(d_tree, tape, active, networks, query, join, top, grid):
        return _gradients(d_tree, networks, query)


def _reading(tree: Tensor, uniforms: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    batch, levels = tree.shape[0], uniforms.shape[1]
    return (
        tree.new_empty(batch, levels),
        tree.new_empty(batch, levels, dtype=torch.bool),
        tree.new_empty(batch, dtype=torch.int64),
        tree.new_empty(batch, tree.shape[2]),
    )


def _gradients(d_tree: Tensor, networks: list[Tensor], query: int) -> tuple[Tensor, Tensor]:
    weights = sum(tensor.numel() for tensor in networks)
    return d_tree.new_empty(d_tree.shape[0], query), d_tree.new_empty(weights)


def _tape(tree: Tensor, rows: int, taped: bool) -> Tensor:
    """A panel of 16 lanes for every row that a chunk of examples keeps."""
    return tree.new_empty((tree.shape[0] + LANES - 1) // LANES if taped else 0, LANES * rows)


when_loaded(register)
