"""A baseline's LSTM over rows, in the C++ engine: `ham::read_rows`.

PyTorch runs it step by step, with a dozen small kernels each; here a whole sequence is one call, forward and one
backward, on the panels that episodes use. The rows get no gradient: they are data.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from ctypes import c_int64
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ham.core.errors import InputError
from ham.ops.native.calls import (
    expected_parameters,
    in_order,
    matrix,
    needs_tape,
    run_backward,
    run_forward,
    sizes_of,
)
from ham.ops.native.checks import (
    check,
    check_dimensions,
    check_finite,
    check_parameters,
    check_range,
    pointer,
    require_engine,
)
from ham.ops.native.library import structures
from ham.ops.native.registration import register


def read(parameters: Mapping[str, Tensor], rows: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """An LSTM over the first rows, `lengths` many, of each example: [batch, slots, features].

    The parameters are those of a `torch.nn.LSTM`; a second direction starts at an example's own last row. Gives the
    states [batch, slots, directions · cells], zeros beyond an example's rows, and the last state and cell
    [batch, directions, cells].
    """
    require_engine()
    rows = data("rows", rows)
    cells = matrix(parameters, "weight_hh_l0")[1]
    directions = 2 if "weight_hh_l0_reverse" in parameters else 1
    shapes = expected_parameters("reader", features=rows.shape[2], cells=cells, directions=directions)
    given = in_order(parameters, shapes, "an LSTM")
    check_parameters(given, shapes)
    check("lengths", lengths, (len(rows),), torch.int64)
    *results, _tape = torch.ops.ham.read_rows.default(
        given, rows, lengths, cells, directions, needs_tape(*given)
    )
    return tuple(results)


def data(name: str, tensor: Tensor) -> Tensor:
    """Rows that get no gradient."""
    check_dimensions(name, tensor, "batch", "time", "bits")
    check(name, tensor, tuple(tensor.shape))
    if torch.is_grad_enabled() and tensor.requires_grad:
        raise InputError(f"{name} get no gradient from the native engine; use the reference backend")
    if not tensor.shape[0]:
        raise InputError("a batch must have at least one example")
    return tensor.detach()


class Given(NamedTuple):
    """The arguments that both directions of the operation have in common, in this order."""

    parameters: Sequence[Tensor]
    rows: Tensor
    lengths: Tensor
    cells: int
    directions: int

    def laid_out(self) -> Given:
        """The same with memory that the engine can walk through, every value checked."""
        parameters = [parameter.contiguous() for parameter in self.parameters]
        rows, lengths = self.rows.contiguous(), self.lengths.contiguous()
        check_finite("rows", rows)
        check_range("lengths", lengths, 0, rows.shape[1])
        return Given(parameters, rows, lengths, self.cells, self.directions)

    def call(self, **rest: Any) -> Any:
        batch, slots, features = self.rows.shape
        return structures().HamReader(
            batch=batch, slots=slots, features=features, cells=self.cells, directions=self.directions, **rest
        )

    def call_on_data(self, *, taped: bool) -> Any:
        addresses = {"rows": pointer(self.rows), "lengths": pointer(self.lengths)}
        return self.call(taped=taped, threads=torch.get_num_threads(), **addresses)

    def results(self) -> tuple[Tensor, Tensor, Tensor]:
        batch, slots, _ = self.rows.shape
        last = (batch, self.directions, self.cells)
        states = self.rows.new_empty(batch, slots, self.directions * self.cells)
        return states, self.rows.new_empty(last), self.rows.new_empty(last)

    @property
    def longest_tape(self) -> int:
        """Floats of a tape of full rows: a shape should not depend on values."""
        batch, slots, _ = self.rows.shape
        lengths = (c_int64 * batch)(*[slots] * batch)
        return sizes_of("reader", self.call(taped=True, threads=1, lengths=ctypes.addressof(lengths)))[0]


def _forward(*arguments: Any) -> tuple[Tensor, ...]:
    *common, taped = arguments
    given = Given(*common).laid_out()
    call, results = given.call_on_data(taped=taped), given.results()
    call.states, call.last_state, call.last_cell = map(pointer, results)
    return (*results, run_forward("reader", call, given.parameters, given.longest_tape))


def _backward(*arguments: Any) -> list[Tensor]:
    *common, tape, d_states, d_last_state, d_last_cell = arguments
    given = Given(*common).laid_out()
    call, dense = given.call_on_data(taped=True), []
    for gradient, result in zip((d_states, d_last_state, d_last_cell), given.results(), strict=True):
        if gradient is not None:
            check("a gradient", gradient, tuple(result.shape))
        dense.append(None if gradient is None else gradient.contiguous())
    call.d_states, call.d_last_state, call.d_last_cell = map(pointer, dense)
    return run_backward("reader", call, given.parameters, tape, given.longest_tape)


def _save(ctx: Any, inputs: tuple, output: tuple) -> None:
    parameters, rows, lengths, *ctx.widths, _ = inputs
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(output[-1])
    ctx.save_for_backward(output[-1], rows, lengths, *parameters)


def _gradient(ctx: Any, *incoming: Tensor | None) -> tuple:
    nothing = (None,) * len(Given._fields)
    if all(gradient is None for gradient in incoming[:-1]):
        return None, *nothing
    tape, rows, lengths, *parameters = ctx.saved_tensors
    common = (parameters, rows, lengths, *ctx.widths)
    return torch.ops.ham.read_rows_backward.default(*common, tape, *incoming[:-1]), *nothing


def _shapes(*arguments: Any) -> tuple[Tensor, ...]:
    *common, taped = arguments
    given = Given(*common)
    return (*given.results(), given.rows.new_empty(given.longest_tape if taped else 0))


register(
    "read_rows",
    "Tensor[] parameters, Tensor rows, Tensor lengths, int cells, int directions",
    results="Tensor states, Tensor last_state, Tensor last_cell",
    incoming="Tensor? d_states, Tensor? d_last_state, Tensor? d_last_cell",
    forward=_forward,
    backward=_backward,
    shapes=_shapes,
    save=_save,
    gradient=_gradient,
)
