"""A baseline's LSTM that writes symbols, in the C++ engine: `ham::write_symbols`.

As in `reader`, a whole sequence is one call. The symbols fed back get no gradient: they are data.
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
    LARGEST,
    Shapes,
    check,
    check_dimensions,
    check_finite,
    check_parameters,
    check_range,
    pointer,
    require_engine,
)
from ham.ops.native.library import structures
from ham.ops.native.reader import data
from ham.ops.native.registration import like_parameters, register


class Widths(NamedTuple):
    """Of a decoder; without a memory, `item` and `width` are 0."""

    bits: int
    cells: int
    item: int = 0
    """Of what it looks at."""
    width: int = 0
    """Of its attention."""

    @property
    def parameters(self) -> Shapes:
        """Names and shapes of its parameters, in the order in which the engine takes them."""
        return expected_parameters("decoder", items=1 if self.width else 0, **self._asdict())


def decode(
    parameters: Mapping[str, Tensor],
    state: Tensor,
    cell: Tensor | None,
    asked: Tensor,
    targets: Tensor | None,
    *,
    symbols: int,
    memory: Tensor | None = None,
    lengths: Tensor | None = None,
) -> Tensor:
    """The output logits [batch, symbols, bits] of an LSTM that is fed the symbol before.

    That is the one of `targets`, or without them its own, rounded. Each example writes the first
    `asked` symbols; beyond them are zeros. State and cell are [batch, directions, cells], as `read`
    gives them; the last direction's are what it starts from.

    With a `memory` [batch, items, item], of which each example has the first `lengths`, it starts
    from tanh of a layer on that state and from a cell of zeros. Before each symbol its state then
    chooses a context by additive attention, which goes into the LSTM after the symbol, and into the
    output after the new state. The parameters are those of `decoder` and `output`, with a memory also
    of `attention` and `start`.
    """
    require_engine()
    attentive = memory is not None
    if (lengths is not None) != attentive or (cell is None) != attentive:
        raise InputError("a memory comes with lengths, and without a cell")
    bits, cells = matrix(parameters, "output.weight")[0], matrix(parameters, "decoder.weight_hh")[1]
    check_dimensions("state", state, "batch", "directions", "cells")
    batch, directions, _ = state.shape
    if not state.numel():
        raise InputError(f"state must not be empty, got {tuple(state.shape)}")
    check("state", state, (batch, directions, cells))
    if cell is not None:
        check("cell", cell, (batch, directions, cells))
    if not isinstance(symbols, int) or not 1 <= symbols <= LARGEST:
        raise InputError(f"symbols must be between 1 and {LARGEST:,}, got {symbols}")
    widths = Widths(bits, cells)
    if memory is not None and lengths is not None:
        check_dimensions("memory", memory, "batch", "items", "item")
        _, items, item = memory.shape
        check("memory", memory, (batch, items, item))
        check("lengths", lengths, (batch,), torch.int64)
        widths = Widths(bits, cells, item, matrix(parameters, "attention.score.weight")[1])
    given = in_order(
        parameters, widths.parameters, f"a decoder {'with' if attentive else 'without'} a memory"
    )
    check_parameters(given, widths.parameters)
    check("asked", asked, (batch,), torch.int64)
    if targets is not None:
        targets = data("targets", targets)
        check("targets", targets, (batch, symbols, bits))
    other = cell if memory is None else memory
    assert other is not None
    taped = needs_tape(state, other, *given)
    arguments = (given, state, other, asked, targets, lengths, list(widths), symbols)
    return torch.ops.ham.write_symbols.default(*arguments, taped)[0]


class Given(NamedTuple):
    """The arguments that both directions of the operation have in common, in this order."""

    parameters: Sequence[Tensor]
    state: Tensor
    other: Tensor
    """The memory of an attentive one, else the cell."""
    asked: Tensor
    targets: Tensor | None
    lengths: Tensor | None
    widths: Sequence[int]
    """Of `Widths`."""
    symbols: int

    def laid_out(self) -> Given:
        """The same with memory that the engine can walk through, every value checked."""
        asked, other = self.asked.contiguous(), self.other.contiguous()
        targets = None if self.targets is None else self.targets.contiguous()
        lengths = None if self.lengths is None else self.lengths.contiguous()
        check_range("asked", asked, 0, self.symbols)
        if targets is not None:
            check_finite("targets", targets)
        if lengths is not None:
            # A mean over nothing is no number.
            check_range("lengths", lengths, 1, min(other.shape[1], LARGEST - 1))
        parameters = [parameter.contiguous() for parameter in self.parameters]
        return Given(
            parameters, self.state.contiguous(), other, asked, targets, lengths, self.widths, self.symbols
        )

    @property
    def attentive(self) -> bool:
        return self.lengths is not None

    def call(self, **rest: Any) -> Any:
        """The structure for the engine, without any data."""
        batch, directions, _ = self.state.shape
        return structures().HamDecoder(
            batch=batch,
            symbols=self.symbols,
            directions=directions,
            items=self.other.shape[1] if self.attentive else 0,
            **Widths(*self.widths)._asdict(),
            **rest,
        )

    def call_on_data(self, *, taped: bool) -> Any:
        call = self.call(
            taped=taped, threads=torch.get_num_threads(), state=pointer(self.state), asked=pointer(self.asked),
            targets=pointer(self.targets), lengths=pointer(self.lengths),
        )  # fmt: skip
        # They come from weights, as the parameters do: a NaN in them is to come out, not to be refused.
        call.cell, call.memory = self.in_its_place(self.other)
        return call

    def in_its_place(self, other: Tensor) -> tuple[int | None, int | None]:
        """Addresses for the cell and the memory, of which it is one."""
        return (None, pointer(other)) if self.attentive else (pointer(other), None)

    def outputs(self) -> Tensor:
        return self.state.new_empty(len(self.state), self.symbols, Widths(*self.widths).bits)

    @property
    def longest_tape(self) -> int:
        """Floats of a tape of all symbols and items: a shape should not depend on values."""
        batch = len(self.state)
        asked = (c_int64 * batch)(*[self.symbols] * batch)
        lengths = (c_int64 * batch)(*[self.other.shape[1]] * batch)
        counts = {
            "asked": ctypes.addressof(asked),
            "lengths": ctypes.addressof(lengths) if self.attentive else None,
        }
        return sizes_of("decoder", self.call(taped=True, threads=1, **counts))[0]


def _forward(*arguments: Any) -> tuple[Tensor, Tensor]:
    *common, taped = arguments
    given = Given(*common).laid_out()
    call, outputs = given.call_on_data(taped=taped), given.outputs()
    call.outputs = pointer(outputs)
    return outputs, run_forward("decoder", call, given.parameters, given.longest_tape)


def _backward(*arguments: Any) -> tuple[Tensor, Tensor, list[Tensor]]:
    *common, tape, d_outputs = arguments
    given = Given(*common).laid_out()
    call, d_outputs = given.call_on_data(taped=True), d_outputs.contiguous()
    check("a gradient", d_outputs, tuple(given.outputs().shape))
    d_state, d_other = torch.empty_like(given.state), torch.empty_like(given.other)
    call.d_outputs, call.d_state = pointer(d_outputs), pointer(d_state)
    call.d_cell, call.d_memory = given.in_its_place(d_other)
    return d_state, d_other, run_backward("decoder", call, given.parameters, tape, given.longest_tape)


def _save(ctx: Any, inputs: tuple, output: tuple) -> None:
    parameters, *tensors = inputs[:6]
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(output[-1])
    ctx.settings = inputs[6:-1]
    ctx.save_for_backward(output[-1], *tensors, *parameters)


def _gradient(ctx: Any, d_outputs: Tensor | None, _: Any) -> tuple:
    if d_outputs is None:
        return (None,) * (len(Given._fields) + 1)
    tape, state, other, asked, targets, lengths, *parameters = ctx.saved_tensors
    common = (parameters, state, other, asked, targets, lengths, *ctx.settings)
    d_state, d_other, gradients = torch.ops.ham.write_symbols_backward.default(*common, tape, d_outputs)
    return gradients, d_state, d_other, *(None,) * (len(Given._fields) - 2)


def _shapes(*arguments: Any) -> tuple[Tensor, Tensor]:
    *common, taped = arguments
    given = Given(*common)
    return given.outputs(), given.state.new_empty(given.longest_tape if taped else 0)


def _gradient_shapes(
    parameters: Sequence[Tensor], state: Tensor, other: Tensor, *_: Any
) -> tuple[Tensor, Tensor, list[Tensor]]:
    return torch.empty_like(state), torch.empty_like(other), like_parameters(parameters)


register(
    "write_symbols",
    "Tensor[] parameters, Tensor state, Tensor other, Tensor asked, Tensor? targets, Tensor? lengths, "
    "int[] widths, int symbols",
    results="Tensor outputs",
    incoming="Tensor d_outputs",
    gradients="(Tensor d_state, Tensor d_other, Tensor[] d_parameters)",
    forward=_forward,
    backward=_backward,
    shapes=_shapes,
    gradient_shapes=_gradient_shapes,
    save=_save,
    gradient=_gradient,
)
