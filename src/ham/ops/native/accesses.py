"""Single accesses by the C++ engine: csrc/binding.cpp has the operations and their gradients.

Here is what PyTorch has to know of them to trace a program: the shapes of what they give.
"""

from __future__ import annotations

from collections.abc import Sequence

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


def attend(tree: Tensor, query: Tensor, uniforms: Tensor, search: list[Tensor]) -> Sequence[Tensor]:
    """One descent of every example, as `reference.attend`, by SEARCH's parameters."""
    try:
        packed = torch.ops.ham.pack.default(search, True, False)
        return torch.ops.ham.attend_.default(tree, query, uniforms, *packed, hidden_width(search, 2))
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
    """One write and the joins above it, in place, as `reference.update`; all but the networks is as in `HAM`."""
    highway = join == "highway"
    try:
        packed = torch.ops.ham.pack.default(networks, False, highway)
        hidden = hidden_width(networks, 10 if highway else 6)
        form = (JOINS.index(join), top, float(grid))
        torch.ops.ham.update_.default(tree, leaf, query, active, *packed, hidden, *form)
    except ValueError as error:
        raise refusal(error) from None
    return tree


def hidden_width(networks: list[Tensor], of_one_layer: int) -> int:
    """0 where networks have one layer, which makes so many tensors."""
    return networks[0].shape[0] if len(networks) > of_one_layer else 0


def refusal(error: ValueError) -> ValueError:
    """Errors of the engine about what it was given are errors of the caller."""
    text = str(error).splitlines()[0]
    return InputError(text.removeprefix(REFUSAL)) if text.startswith(REFUSAL) else error


def register() -> None:
    """Tell PyTorch the shapes of what the operations give; Call in csrc/binding.cpp lays them out."""

    @torch.library.register_fake("ham::pack")
    def _(networks, attends, highway):
        return _packed(networks)

    @torch.library.register_fake("ham::pack_forward")
    def _(networks, attends, highway):
        return _packed(networks)

    @torch.library.register_fake("ham::pack_backward")
    def _(gradient, attends, highway, inputs, outputs, hidden):
        return torch.empty_like(gradient)

    @torch.library.register_fake("ham::attend_")
    def _(tree, query, uniforms, weights, transposed, hidden):
        return _reading(tree, uniforms)

    @torch.library.register_fake("ham::update_")
    def _(tree, leaf, query, active, weights, transposed, hidden, join, top, grid):
        return None

    @torch.library.register_fake("ham::attend_forward")
    def _(tree, query, uniforms, weights, transposed, hidden, taped):
        inputs, width = tree.shape[2] + query.shape[1], tree.shape[2]
        rows = 2 + inputs + uniforms.shape[1] * (width + hidden + 1)
        return *_reading(tree, uniforms), _tape(tree, rows, taped)

    @torch.library.register_fake("ham::update_forward")
    def _(tree, leaf, query, active, weights, transposed, hidden, join, top, grid, taped):
        highway = JOINS[join] == "highway"
        inputs, width = tree.shape[2] + query.shape[1], tree.shape[2]
        joins = 3 if highway else 1
        made = joins if highway or grid or JOINS[join] == "normalised" else 0
        of_a_level = (3 + made) * width + joins * hidden
        rows = 2 + inputs + 2 * hidden + 2 * width + depth_of(int(tree.shape[1]) // 2) * of_a_level
        return _tape(tree, rows, taped)

    @torch.library.register_fake("ham::attend_backward")
    def _(d_tree, d_logits, d_log_probs, d_value, tape, weights, query, hidden):
        return d_tree.new_empty(d_tree.shape[0], query), torch.empty_like(weights)

    @torch.library.register_fake("ham::update_backward")
    def _(d_tree, tape, active, weights, query, hidden, join, top, grid):
        return d_tree.new_empty(d_tree.shape[0], query), torch.empty_like(weights)


def _packed(networks: list[Tensor]) -> tuple[Tensor, Tensor]:
    matrices = sum(tensor.numel() for tensor in networks if tensor.dim() == 2)
    return networks[0].new_empty(sum(map(Tensor.numel, networks))), networks[0].new_empty(matrices)


def _reading(tree: Tensor, uniforms: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    batch, levels = tree.shape[0], uniforms.shape[1]
    return (
        tree.new_empty(batch, levels),
        tree.new_empty(batch, levels, dtype=torch.bool),
        tree.new_empty(batch, dtype=torch.int64),
        tree.new_empty(batch, tree.shape[2]),
        tree.new_empty(batch, levels),
    )


def _tape(tree: Tensor, rows: int, taped: bool) -> Tensor:
    """A panel of 16 lanes for every row that a chunk of examples keeps."""
    return tree.new_empty((tree.shape[0] + LANES - 1) // LANES if taped else 0, LANES * rows)


when_loaded(register)
