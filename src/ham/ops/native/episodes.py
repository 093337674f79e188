"""Whole episodes of LSTM+HAM and raw HAM by the C++ engine: what is asked for, checked.

It computes what the models' forward passes define; README.md beside this folder has the derivation.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict, Unpack, get_args

import torch
from torch import Tensor

from ham.core.errors import InputError
from ham.core.tree import depth_of
from ham.ops.episode import Entropy, Episode, Order, Stock
from ham.ops.native.calls import needs_tape
from ham.ops.native.checks import LARGEST, check, check_dimensions, require_engine
from ham.ops.native.layout import JOINS, Sizes, check_bounds

ENTROPIES = get_args(Entropy)
"""In the order of HamEntropy."""


class EpisodeOptions(TypedDict, total=False):
    """What may be said of a model beyond its parameters."""

    soft: bool
    """Attend softly. Nothing is decided then: no uniforms, turns of depth 0, and the likeliest leaves."""
    join: str
    """The form of JOIN, as in `HAM`."""
    top: float
    """As in `HAM`."""
    grid: int
    """As in `HAM`."""
    cell_bound: float
    """As in `LSTMHAM`."""


def episode(parameters: Mapping[str, Tensor], order: Order, **options: Unpack[EpisodeOptions]) -> Episode:
    """Run a model, whose parameters tell which: LSTM+HAM, or raw HAM, whose inputs are its queries.

    What was not asked for is empty (time 0), the tree None.
    """
    require_engine()
    sizes = Sizes.of(parameters)
    check_order(sizes, order)
    return _run(sizes.in_order(parameters), sizes, order, **options)


def check_order(sizes: Sizes, order: Order) -> None:
    """Refuse what does not fit the model, or together."""
    inputs, timesteps = order.inputs, order.timesteps
    check_dimensions("inputs", inputs, "batch", "rows" if sizes.has_lstm else "time", "bits")
    batch, rows, _ = inputs.shape
    depth_of(order.leaves)
    if order.every < 1 or timesteps < 0:
        raise InputError(
            f"every must be at least 1 and timesteps at least 0, got {order.every} and {timesteps}"
        )
    if max(order.leaves, timesteps, order.every) > LARGEST:
        raise InputError(
            f"leaves, timesteps and every must be at most {LARGEST:,}, "
            f"got {order.leaves}, {timesteps}, {order.every}"
        )
    check("inputs", inputs, (batch, rows, sizes.bits))
    if batch < 1:
        raise InputError("a batch must have at least one example")
    check("durations", order.durations, (batch,), torch.int64)
    if sizes.has_lstm:
        if rows > order.leaves:
            raise InputError(f"{rows} items do not fit into a memory of {order.leaves} leaves")
        if order.lengths is None:
            raise InputError("LSTM+HAM needs the lengths of its inputs")
        check("lengths", order.lengths, (batch,), torch.int64)
    else:
        if timesteps > rows:
            raise InputError(f"{timesteps} timesteps need as many inputs, got {rows}")
        if order.places is not None or order.start is not None:
            raise InputError("places and start are for LSTM+HAM")
    if order.stock:
        check_stock(sizes, order.stock)
    if order.places is not None:
        check("places", order.places, (rows,), torch.int64)
    for part in order.start or ():
        check("start", part, (batch, sizes.query))


def check_stock(sizes: Sizes, stock: Stock) -> None:
    """Refuse a stock that has another shape than its ends and the memory say."""
    if sizes.has_lstm:
        raise InputError("a stock is for raw HAM, whose memory begins empty")
    check("stock", stock.values, (stock.ends.numel(), sizes.width))
    check("ends", stock.ends, (stock.ends.numel(),), torch.int64)


def check_soft(order: Order, soft: bool) -> None:
    """Refuse what only soft attention knows, or what it does not."""
    if soft and order.stock:
        raise InputError("a stock is for hard attention")
    if soft and order.uniforms is not None:
        raise InputError("soft attention decides nothing: uniforms must be None")
    if (name := order.penalties.of_soft) and not soft:
        raise InputError(f"{name} is for soft attention")
    if soft and order.leaves * order.timesteps > LARGEST:
        raise InputError(
            f"soft attention visits all leaves: leaves times timesteps must be at most {LARGEST:,}, "
            f"got {order.leaves} and {order.timesteps}"
        )


def _run(
    parameters: list[Tensor],
    sizes: Sizes,
    order: Order,
    *,
    soft: bool = False,
    join: str = "rectified",
    top: float = 0.0,
    grid: int = 0,
    cell_bound: float = 0.0,
) -> Episode:
    check_soft(order, soft)
    check_bounds(sizes.highway, join, top, grid, cell_bound)
    inputs, uniforms, timesteps = order.inputs.detach(), order.uniforms, order.timesteps
    lengths = order.lengths if sizes.has_lstm else None
    if not sizes.has_lstm:
        inputs = inputs[:, :timesteps]
    if uniforms is not None:
        if uniforms.dim() == 3 and uniforms.shape[1] > timesteps:
            uniforms = uniforms[:, :timesteps]
        check("uniforms", uniforms, (len(inputs), timesteps, depth_of(order.leaves)))
        uniforms = uniforms.detach()
    first_state, first_cell = (part.detach() for part in order.start) if order.start else (None, None)
    values, ends = (order.stock.values.detach(), order.stock.ends) if order.stock else (None, None)
    penalties = order.penalties
    pull, exploration = penalties.pull, penalties.exploration
    outputs, turn_logits, turns, leaves, queries, tree, costs, _tape = torch.ops.ham.episode.default(
        parameters, inputs, lengths, order.durations, uniforms, order.places, first_state, first_cell, values, ends,
        list(map(int, sizes)), order.leaves, timesteps, order.every, soft, JOINS.index(join), pull,
        penalties.tree_clip, exploration, top, float(grid), cell_bound, ENTROPIES.index(penalties.entropy),
        order.final_tree, order.keep, needs_tape(*parameters) or pull > 0 or exploration > 0,
    )  # fmt: skip
    # A single leaf has nothing above it to pull, and no turns to explore.
    weights = (pull, exploration) if order.leaves > 1 else (0.0, 0.0)
    of_penalties = (cost if weight else None for cost, weight in zip(costs, weights, strict=True))
    kept = tree if order.final_tree else None
    return Episode(outputs, turn_logits, turns, leaves, queries, kept, *of_penalties)
