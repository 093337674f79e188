"""An episode as an operation of PyTorch, `ham::episode`: memory for the engine, shapes for tracing, its gradient."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import c_double, c_int64
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ham.core.tree import depth_of
from ham.ops.episode import LEAST_ENTROPY
from ham.ops.native.calls import run_backward, run_forward, sizes_of
from ham.ops.native.checks import (
    check,
    check_ends,
    check_finite,
    check_parameters,
    check_places,
    check_range,
    pointer,
)
from ham.ops.native.layout import Sizes
from ham.ops.native.library import structures
from ham.ops.native.registration import register

ARGUMENTS = (
    "Tensor[] parameters, Tensor inputs, Tensor? lengths, Tensor durations, Tensor? uniforms, "
    "Tensor? places, Tensor? first_state, Tensor? first_cell, Tensor? stock, Tensor? stock_ends, int[] widths, "
    "int leaves, int timesteps, int every, bool soft, int join, "
    "float pull, float tree_clip, float exploration, float top, float grid, float cell_bound, "
    "int entropy, bool final_tree, bool keep"
)
"""What both directions need to know."""

TENSORS = 10
"""How many of them come first and are tensors."""


class Given(NamedTuple):
    """The arguments that both directions have in common, in this order."""

    parameters: Sequence[Tensor]
    inputs: Tensor
    lengths: Tensor | None
    durations: Tensor
    uniforms: Tensor | None
    places: Tensor | None
    first_state: Tensor | None
    first_cell: Tensor | None
    stock: Tensor | None
    stock_ends: Tensor | None
    widths: Sequence[Any]
    """Of `Sizes`."""
    leaves: int
    timesteps: int
    every: int
    soft: bool
    join: int
    pull: float
    tree_clip: float
    exploration: float
    top: float
    grid: float
    cell_bound: float
    entropy: int
    final_tree: bool
    keep: bool

    @property
    def sizes(self) -> Sizes:
        return Sizes(*self.widths)

    @property
    def kind(self) -> str:
        """Which of the engine's calls it is."""
        return "soft" if self.soft else "episode"

    @property
    def depth(self) -> int:
        return 0 if self.soft else depth_of(self.leaves)

    @property
    def longest_tape(self) -> int:
        """Floats of a tape in which every example runs to the end: a shape should not depend on values."""
        batch, rows = int(self.inputs.shape[0]), int(self.inputs.shape[1])
        form = (self.kind, self.join, self.grid, self.places is not None, self.final_tree)
        return _longest_tape(
            self.sizes, batch, rows, self.leaves, self.timesteps, self.every, *form, self.kinds
        )

    @property
    def kinds(self) -> int:
        """Of leaves that hold something at first."""
        return 0 if self.stock is None else int(self.stock.shape[0])

    def laid_out(self) -> Given:
        """The same with memory that the engine can walk through, every value checked."""
        parameters = [parameter.contiguous() for parameter in self.parameters]
        check_parameters(parameters, self.sizes.parameters)
        tensors: tuple[Any, ...] = self[1:TENSORS]
        dense: list[Any] = [None if tensor is None else tensor.contiguous() for tensor in tensors]
        settings: tuple[Any, ...] = self[TENSORS:]
        given = Given(parameters, *dense, *settings)
        for name in ("inputs", "uniforms", "first_state", "first_cell", "stock"):
            if (tensor := getattr(given, name)) is not None:
                check_finite(name, tensor)
        check_range("durations", given.durations, 0, self.timesteps)
        if given.lengths is not None:
            check_range("lengths", given.lengths, 0, self.inputs.shape[1])
        if given.places is not None:
            check_places(given.places, self.leaves)
        if given.stock_ends is not None:
            check_ends(given.stock_ends, self.leaves)
        return given

    def call(self, *, taped: bool) -> Any:
        """The structure for the engine, without its results."""
        return structures().HamEpisode(
            batch=len(self.inputs), leaves=self.leaves, rows=self.inputs.shape[1], timesteps=self.timesteps,
            every=self.every, threads=torch.get_num_threads(), join=self.join, pull=self.pull,
            tree_clip=self.tree_clip, exploration=self.exploration, top=self.top, grid=self.grid,
            cell_bound=self.cell_bound, entropy=self.entropy, least_entropy=LEAST_ENTROPY, taped=taped,
            inputs=pointer(self.inputs), lengths=pointer(self.lengths), durations=pointer(self.durations),
            uniforms=pointer(self.uniforms), places=pointer(self.places), first_state=pointer(self.first_state),
            first_cell=pointer(self.first_cell), kinds=self.kinds, stock=pointer(self.stock),
            stock_ends=pointer(self.stock_ends), **self.sizes.fields,
        )  # fmt: skip

    def results(self) -> tuple[Tensor, ...]:
        """Outputs, turn logits, turns, leaves, queries, the final tree and the costs of both penalties.

        What is not asked for is empty.
        """
        sizes, batch, time = self.sizes, len(self.inputs), self.timesteps
        recorded = time if self.keep else 0

        def empty(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
            return self.inputs.new_empty(shape, dtype=dtype)

        return (
            empty(batch, time // self.every, sizes.outputs),
            empty(batch, recorded, self.depth),
            empty(batch, recorded, self.depth, dtype=torch.bool),
            empty(batch, recorded, dtype=torch.int64),
            empty(batch, recorded, sizes.query),
            empty(batch, 2 * self.leaves if self.final_tree else 0, sizes.width),
            empty(2),
        )


@lru_cache(maxsize=256)
def _longest_tape(
    sizes: Sizes,
    batch: int,
    rows: int,
    leaves: int,
    timesteps: int,
    every: int,
    kind: str,
    join: int,
    grid: float,
    placed: bool,
    final_tree: bool,
    kinds: int,
) -> int:
    durations = (c_int64 * batch)(*[timesteps] * batch)
    # Rows far from each other have the fewest ancestors in common.
    places = (c_int64 * max(rows, 1))(*[row * leaves // rows for row in range(rows)]) if placed else None
    # And ends far from each other, none of them between two subtrees, lie across the most.
    ends = (c_int64 * max(kinds, 1))(*[kind * leaves // kinds | 1 for kind in range(kinds)])
    floats = 0
    # A single empty leaf makes every height of an empty subtree worth keeping.
    for filled in (rows, min(rows, leaves - 1)) if sizes.has_lstm else (0,):
        lengths = (c_int64 * batch)(*[filled] * batch)
        call = structures().HamEpisode(
            batch=batch, leaves=leaves, rows=rows, timesteps=timesteps, every=every, threads=1, taped=True,
            join=join, grid=grid, kinds=kinds, stock_ends=ctypes.addressof(ends), durations=ctypes.addressof(durations),
            lengths=ctypes.addressof(lengths) if sizes.has_lstm else None,
            places=None if places is None else ctypes.addressof(places),
            tree=ctypes.addressof(durations) if final_tree else None, **sizes.fields,
        )  # fmt: skip
        floats = max(floats, sizes_of(kind, call)[0])
    return floats


def _forward(*arguments: Any) -> tuple[Tensor, ...]:
    *common, taped = arguments
    given = Given(*common).laid_out()
    call, results = given.call(taped=taped), given.results()
    call.output_logits = pointer(results[0])
    if given.keep:
        call.turn_logits, call.turns, call.leaf, call.queries = map(pointer, results[1:5])
    # Its presence decides how many updates the tape holds.
    call.tree = pointer(results[5]) if given.final_tree else None
    costs = (c_double * 2)()
    call.penalties = ctypes.addressof(costs)
    tape = run_forward(given.kind, call, given.parameters, given.longest_tape if taped else 0)
    results[6][0], results[6][1] = costs
    return (*results, tape)


def _backward(*arguments: Any) -> list[Tensor]:
    *common, tape, d_outputs, d_turn_logits, d_penalties = arguments
    given = Given(*common).laid_out()
    # A penalty is descended as much as the loss has of it.
    d_pull, d_exploration = (0.0, 0.0) if d_penalties is None else d_penalties.tolist()
    given = given._replace(pull=given.pull * d_pull, exploration=given.exploration * d_exploration)
    call, batch = given.call(taped=True), len(given.inputs)
    # Only that there is one counts here.
    call.tree = pointer(given.parameters[0]) if given.final_tree else None
    incoming = []
    for gradient, shape in (
        (d_outputs, (batch, given.timesteps // given.every, given.sizes.outputs)),
        (d_turn_logits, (batch, given.timesteps, given.depth)),
    ):
        if gradient is not None:
            check("a gradient", gradient, shape)
        incoming.append(None if gradient is None else gradient.contiguous())
    call.d_output_logits, call.d_turn_logits = map(pointer, incoming)
    return run_backward(given.kind, call, given.parameters, tape, given.longest_tape)


def _save(ctx: Any, inputs: tuple, output: tuple) -> None:
    parameters, *tensors = inputs[:TENSORS]
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(*output[2:6], output[7])
    if not inputs[-2]:
        ctx.mark_non_differentiable(output[1])
    ctx.settings = inputs[TENSORS:-1]
    ctx.save_for_backward(output[-1], *tensors, *parameters)


def _gradient(ctx: Any, d_outputs: Tensor | None, d_turn_logits: Tensor | None, *rest: Any) -> tuple:
    nothing, incoming = (None,) * len(Given._fields), (d_outputs, d_turn_logits, rest[4])
    if all(gradient is None for gradient in incoming):
        return None, *nothing
    tape, *saved = ctx.saved_tensors
    tensors, parameters = saved[: TENSORS - 1], saved[TENSORS - 1 :]
    common = (parameters, *tensors, *ctx.settings)
    return torch.ops.ham.episode_backward.default(*common, tape, *incoming), *nothing


def _shapes(*arguments: Any) -> tuple[Tensor, ...]:
    *common, taped = arguments
    given = Given(*common)
    return (*given.results(), given.inputs.new_empty(given.longest_tape if taped else 0))


register(
    "episode",
    ARGUMENTS,
    results="Tensor outputs, Tensor turn_logits, Tensor turns, Tensor leaves, Tensor queries, Tensor tree, "
    "Tensor penalties",
    incoming="Tensor? d_outputs, Tensor? d_turn_logits, Tensor? d_penalties",
    forward=_forward,
    backward=_backward,
    shapes=_shapes,
    save=_save,
    gradient=_gradient,
)
