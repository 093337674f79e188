"""The baselines' LSTMs in the C++ engine: one that reads rows, and one that writes symbols.

PyTorch runs them step by step, with a dozen small kernels each; here a whole sequence is one call,
forward and one backward, on the panels that episodes use. What they compute is what the modules of
`ham.models` define in plain PyTorch. The rows and the symbols fed back get no gradient: they are
data. As in `native`, all checking happens here, before any pointer is passed on.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import c_int64
from functools import cache
from itertools import accumulate
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ham.core.errors import InputError
from ham.ops.native.layout import (
    LARGEST,
    Shapes,
    aligned,
    check,
    check_finite,
    check_laid_out,
    check_parameters,
    check_range,
    matrix,
    needs_tape,
    pointer,
    pointers,
    pointers_into,
    sizes_of,
)
from ham.ops.native.library import buffer, loaded, why_not
from ham.ops.native.structures import DecoderCall, ReaderCall, SequenceCall


@cache
def _lstm_shapes(name: str, inputs: int, cells: int) -> Shapes:
    return (
        (f"{name} weight_ih", (4 * cells, inputs)),
        (f"{name} weight_hh", (4 * cells, cells)),
        (f"{name} bias_ih", (4 * cells,)),
        (f"{name} bias_hh", (4 * cells,)),
    )


def read(parameters: Sequence[Tensor], rows: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """An LSTM over the first rows, `lengths` many, of each example: [batch, slots, features].

    The parameters are four for each direction, as `torch.nn.LSTM` has them; a second direction
    starts at an example's own last row. Gives the states [batch, slots, directions · cells], zeros
    beyond an example's rows, and the last state and cell [batch, directions, cells].
    """
    if len(parameters) not in (4, 8):
        raise InputError(f"an LSTM has 4 or, in both directions, 8 parameter tensors, got {len(parameters)}")
    cells = matrix("lstm weight_hh", parameters[1])[1]
    rows = _data("rows", rows)
    batch, _, features = rows.shape
    shapes = _lstm_shapes("lstm", features, cells) + _lstm_shapes("reverse lstm", features, cells)
    check_parameters(parameters, shapes[: len(parameters)])
    check("lengths", lengths, (batch,), torch.int64)
    _require_engine()
    *results, _tape = torch.ops.ham.read_rows.default(
        list(parameters), rows, lengths, needs_tape(*parameters)
    )
    return tuple(results)


def decode(
    parameters: Sequence[Tensor],
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
    output after the new state. The parameters: for a memory attention's (of the query: weight and
    bias, of an item, score) and the start's two; the LSTM's four; the output's two.
    """
    attentive = memory is not None
    if (lengths is not None) != attentive or (cell is None) != attentive:
        raise InputError("a memory comes with lengths, and without a cell")
    if len(parameters) != (12 if attentive else 6):
        raise InputError(
            f"a decoder {'with' if attentive else 'without'} a memory has "
            f"{12 if attentive else 6} parameter tensors, got {len(parameters)}"
        )
    bits, cells = matrix("output weight", parameters[-2])[0], matrix("lstm weight_hh", parameters[-5])[1]
    width = matrix("score weight", parameters[3])[1] if attentive else 0
    if not isinstance(state, Tensor) or state.dim() != 3 or not state.numel():
        raise InputError(f"state must be [batch, directions, cells], got {getattr(state, 'shape', state)}")
    batch, directions, _ = state.shape
    check("state", state, (batch, directions, cells))
    if cell is not None:
        check("cell", cell, (batch, directions, cells))
    if not isinstance(symbols, int) or not 1 <= symbols <= LARGEST:
        raise InputError(f"symbols must be between 1 and {LARGEST:,}, got {symbols}")
    items = item = 0
    if memory is not None and lengths is not None:
        if not isinstance(memory, Tensor) or memory.dim() != 3:
            raise InputError(f"memory must be [batch, items, item], got {getattr(memory, 'shape', memory)}")
        _, items, item = memory.shape
        check("memory", memory, (batch, items, item))
        check("lengths", lengths, (batch,), torch.int64)
    check_parameters(parameters, _decoder_shapes(bits, cells, item, width))
    check("asked", asked, (batch,), torch.int64)
    if targets is not None:
        targets = _data("targets", targets)
        check("targets", targets, (batch, symbols, bits))
    other = cell if memory is None else memory
    assert other is not None
    _require_engine()
    taped = needs_tape(state, other, *parameters)
    arguments = (list(parameters), state, other, asked, targets, lengths, symbols)
    return torch.ops.ham.write_symbols.default(*arguments, taped)[0]


@cache
def _decoder_shapes(bits: int, cells: int, item: int, width: int) -> Shapes:
    attention: Shapes = (
        ("query weight", (width, cells)),
        ("query bias", (width,)),
        ("item weight", (width, item)),
        ("score weight", (1, width)),
        ("start weight", (cells, cells)),
        ("start bias", (cells,)),
    )
    return (
        *(attention if width else ()),
        *_lstm_shapes("lstm", bits + item, cells),
        ("output weight", (bits, cells + item)),
        ("output bias", (bits,)),
    )


def _data(name: str, tensor: Tensor) -> Tensor:
    """Rows that get no gradient."""
    if not isinstance(tensor, Tensor) or tensor.dim() != 3:
        raise InputError(f"{name} must be [batch, time, bits], got {getattr(tensor, 'shape', tensor)}")
    check(name, tensor, tuple(tensor.shape))
    if torch.is_grad_enabled() and tensor.requires_grad:
        raise InputError(f"{name} get no gradient from the native engine; use the reference backend")
    if not tensor.shape[0]:
        raise InputError("a batch must have at least one example")
    return tensor.detach()


def _require_engine() -> None:
    if why := why_not():
        raise InputError(f"the native engine cannot be had: {why}")


def _reader_call(parameters: Sequence[Tensor], rows: Tensor, lengths: Tensor, taped: bool) -> ReaderCall:
    check_finite("rows", rows)
    check_range("lengths", lengths, 0, rows.shape[1])
    return _reader_shape(
        parameters,
        rows,
        lengths=pointer(lengths),
        rows=pointer(rows),
        taped=taped,
        threads=torch.get_num_threads(),
    )


def _reader_shape(parameters: Sequence[Tensor], of: Tensor, **rest: Any) -> ReaderCall:
    batch, slots, features = of.shape
    cells, directions = parameters[1].shape[1], len(parameters) // 4
    return ReaderCall(batch=batch, slots=slots, features=features, cells=cells, directions=directions, **rest)


def _reader_results(call: ReaderCall, of: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    last = (call.batch, call.directions, call.cells)
    return (
        of.new_empty(call.batch, call.slots, call.directions * call.cells),
        of.new_empty(last),
        of.new_empty(last),
    )


def _read(parameters: Sequence[Tensor], rows: Tensor, lengths: Tensor, taped: bool) -> tuple[Tensor, ...]:
    parameters, rows, lengths = _dense(parameters), rows.contiguous(), lengths.contiguous()
    call = _reader_call(parameters, rows, lengths, taped)
    results = _reader_results(call, rows)
    call.states, call.last_state, call.last_cell = map(pointer, results)
    tape = _run_forward(call, "reader", parameters, _longest_reader_tape(call))
    return (*results, tape)


def _read_backward(
    parameters: Sequence[Tensor], rows: Tensor, lengths: Tensor, tape: Tensor, *incoming: Tensor | None
) -> list[Tensor]:
    parameters, rows, lengths = _dense(parameters), rows.contiguous(), lengths.contiguous()
    call = _reader_call(parameters, rows, lengths, True)
    dense = [None if gradient is None else gradient.contiguous() for gradient in incoming]
    for gradient, result in zip(dense, _reader_results(call, rows), strict=True):
        if gradient is not None:
            check("a gradient", gradient, tuple(result.shape))
    call.d_states, call.d_last_state, call.d_last_cell = map(pointer, dense)
    return _run_backward(call, "reader", parameters, tape, _longest_reader_tape(call))


def _longest_reader_tape(call: ReaderCall) -> int:
    """Floats of a tape of full rows: a shape should not depend on values."""
    lengths = (c_int64 * call.batch)(*[call.slots] * call.batch)
    longest = ReaderCall(
        batch=call.batch, slots=call.slots, features=call.features, cells=call.cells, directions=call.directions,
        taped=True, threads=1, lengths=ctypes.addressof(lengths),
    )  # fmt: skip
    return sizes_of(longest, "reader")[0]


def _decoder_shape(
    weights: Sequence[Tensor], start: Tensor, other: Tensor, attentive: bool, symbols: int, **rest: Any
) -> DecoderCall:
    """`other` is the memory of an attentive one, else the cell."""
    bits, cells = weights[-2].shape[0], weights[-5].shape[1]
    items, item, width = (*other.shape[1:], weights[3].shape[1]) if attentive else (0, 0, 0)
    return DecoderCall(
        batch=len(start), symbols=symbols, bits=bits, cells=cells, directions=start.shape[1], items=items, item=item,
        width=width, **rest,
    )  # fmt: skip


class _Writing(NamedTuple):
    """What a decoder is given, in both directions."""

    parameters: Sequence[Tensor]
    state: Tensor
    other: Tensor
    asked: Tensor
    targets: Tensor | None
    lengths: Tensor | None
    symbols: int

    def laid_out(self) -> _Writing:
        asked, other = self.asked.contiguous(), self.other.contiguous()
        targets = None if self.targets is None else self.targets.contiguous()
        lengths = None if self.lengths is None else self.lengths.contiguous()
        check_range("asked", asked, 0, self.symbols)
        if targets is not None:
            check_finite("targets", targets)
        if lengths is not None:
            # A mean over nothing is no number.
            check_range("lengths", lengths, 1, min(other.shape[1], LARGEST - 1))
        parameters, state = _dense(self.parameters), self.state.contiguous()
        return _Writing(parameters, state, other, asked, targets, lengths, self.symbols)

    def call(self, taped: bool) -> DecoderCall:
        attentive = self.lengths is not None
        call = _decoder_shape(
            self.parameters, self.state, self.other, attentive, self.symbols, taped=taped,
            threads=torch.get_num_threads(), state=pointer(self.state), asked=pointer(self.asked),
            targets=pointer(self.targets), lengths=pointer(self.lengths),
        )  # fmt: skip
        # They come from weights, as the parameters do: a NaN in them is to come out, not to be refused.
        call.cell, call.memory = (None, pointer(self.other)) if attentive else (pointer(self.other), None)
        return call

    @property
    def longest_tape(self) -> int:
        """Floats of a tape of all symbols and items: a shape should not depend on values."""
        batch, attentive = len(self.state), self.lengths is not None
        asked = (c_int64 * batch)(*[self.symbols] * batch)
        lengths = (c_int64 * batch)(*[self.other.shape[1]] * batch)
        call = _decoder_shape(
            self.parameters, self.state, self.other, attentive, self.symbols, taped=True, threads=1,
            asked=ctypes.addressof(asked), lengths=ctypes.addressof(lengths) if attentive else None,
        )  # fmt: skip
        return sizes_of(call, "decoder")[0]


def _write(*arguments: Any) -> tuple[Tensor, Tensor]:
    *common, taped = arguments
    writing = _Writing(*common).laid_out()
    call = writing.call(taped)
    outputs = writing.state.new_empty(call.batch, call.symbols, call.bits)
    call.outputs = pointer(outputs)
    return outputs, _run_forward(call, "decoder", writing.parameters, writing.longest_tape)


def _write_backward(*arguments: Any) -> tuple[Tensor, Tensor, list[Tensor]]:
    *common, tape, d_outputs = arguments
    writing = _Writing(*common).laid_out()
    call, d_outputs = writing.call(True), d_outputs.contiguous()
    check("a gradient", d_outputs, (call.batch, call.symbols, call.bits))
    d_state, d_other = torch.empty_like(writing.state), torch.empty_like(writing.other)
    call.d_outputs, call.d_state = pointer(d_outputs), pointer(d_state)
    call.d_cell, call.d_memory = (None, pointer(d_other)) if call.items else (pointer(d_other), None)
    return d_state, d_other, _run_backward(call, "decoder", writing.parameters, tape, writing.longest_tape)


def _dense(tensors: Sequence[Tensor]) -> list[Tensor]:
    return [tensor.contiguous() for tensor in tensors]


def _run_forward(
    call: ReaderCall | DecoderCall, name: str, parameters: Sequence[Tensor], longest_tape: int
) -> Tensor:
    addresses = pointers(parameters)
    of_tape, of_scratch, _ = sizes_of(call, name)
    tape, scratch = buffer(longest_tape if call.taped else 0), buffer(of_scratch)
    if call.taped and of_tape > longest_tape:
        raise RuntimeError(f"a tape of {of_tape} floats is longer than the longest, {longest_tape}")
    call.parameters, call.tape, call.scratch = addresses, pointer(tape), pointer(scratch)
    getattr(loaded(), f"ham_{name}_forward")(ctypes.byref(call))
    return tape


def _run_backward(
    call: ReaderCall | DecoderCall, name: str, parameters: Sequence[Tensor], tape: Tensor, longest_tape: int
) -> list[Tensor]:
    tape = aligned(tape)
    check("what was saved for backward", tape, (longest_tape,))
    gradients = [torch.empty_like(parameter) for parameter in parameters]
    addresses, d_addresses = pointers(parameters), pointers(gradients)
    scratch = buffer(sizes_of(call, name)[2])
    call.parameters, call.d_parameters = addresses, d_addresses
    call.tape, call.scratch = pointer(tape), pointer(scratch)
    getattr(loaded(), f"ham_{name}_backward")(ctypes.byref(call))
    return gradients


def _save_read(ctx: Any, inputs: tuple, output: tuple) -> None:
    parameters, rows, lengths, _ = inputs
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(output[-1])
    ctx.save_for_backward(output[-1], rows, lengths, *parameters)


def _read_gradient(
    ctx: Any, d_states: Tensor | None, d_state: Tensor | None, d_cell: Tensor | None, _: Any
) -> tuple:
    incoming = (d_states, d_state, d_cell)
    if all(gradient is None for gradient in incoming):
        return None, None, None, None
    tape, rows, lengths, *parameters = ctx.saved_tensors
    return (
        torch.ops.ham.read_rows_backward.default(parameters, rows, lengths, tape, *incoming),
        None,
        None,
        None,
    )


def _save_write(ctx: Any, inputs: tuple, output: tuple) -> None:
    parameters, *tensors = inputs[:6]
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(output[-1])
    ctx.symbols = inputs[6]
    ctx.save_for_backward(output[-1], *tensors, *parameters)


def _write_gradient(ctx: Any, d_outputs: Tensor | None, _: Any) -> tuple:
    if d_outputs is None:
        return (None,) * 8
    tape, state, other, asked, targets, lengths, *parameters = ctx.saved_tensors
    common = (parameters, state, other, asked, targets, lengths, ctx.symbols)
    d_state, d_other, gradients = torch.ops.ham.write_symbols_backward.default(*common, tape, d_outputs)
    return gradients, d_state, d_other, None, None, None, None, None


READING = "Tensor[] parameters, Tensor rows, Tensor lengths"
WRITING = "Tensor[] parameters, Tensor state, Tensor other, Tensor asked, Tensor? targets, Tensor? lengths, int symbols"
_fragment: torch.library.Library | None = None


def register() -> None:
    """Make both LSTMs operations of PyTorch: with the shapes of what they give, and their gradients."""
    global _fragment
    _fragment = fragment = torch.library.Library("ham", "FRAGMENT")
    fragment.define(
        f"read_rows({READING}, bool taped) -> (Tensor states, Tensor last_state, Tensor last_cell, Tensor tape)"
    )
    fragment.define(
        f"read_rows_backward({READING}, Tensor tape, Tensor? d_states, Tensor? d_last_state, Tensor? d_last_cell) "
        f"-> Tensor[]"
    )
    fragment.define(f"write_symbols({WRITING}, bool taped) -> (Tensor outputs, Tensor tape)")
    fragment.define(
        f"write_symbols_backward({WRITING}, Tensor tape, Tensor d_outputs) "
        f"-> (Tensor d_state, Tensor d_other, Tensor[] d_parameters)"
    )
    fragment.impl("read_rows", _read, "CPU")
    fragment.impl("read_rows_backward", _read_backward, "CPU")
    fragment.impl("write_symbols", _write, "CPU")
    fragment.impl("write_symbols_backward", _write_backward, "CPU")

    @torch.library.register_fake("ham::read_rows", lib=fragment)
    def _(parameters, rows, lengths, taped):
        call = _reader_shape(parameters, rows)
        return (*_reader_results(call, rows), rows.new_empty(_longest_reader_tape(call) if taped else 0))

    @torch.library.register_fake("ham::read_rows_backward", lib=fragment)
    def _(parameters, *_):
        return [torch.empty_like(parameter) for parameter in parameters]

    @torch.library.register_fake("ham::write_symbols", lib=fragment)
    def _(*arguments):
        *common, taped = arguments
        writing = _Writing(*common)
        outputs = writing.state.new_empty(
            len(writing.state), writing.symbols, writing.parameters[-2].shape[0]
        )
        return outputs, writing.state.new_empty(writing.longest_tape if taped else 0)

    @torch.library.register_fake("ham::write_symbols_backward", lib=fragment)
    def _(parameters, state, other, *_):
        gradients = [torch.empty_like(parameter) for parameter in parameters]
        return torch.empty_like(state), torch.empty_like(other), gradients

    torch.library.register_autograd("ham::read_rows", _read_gradient, setup_context=_save_read, lib=fragment)
    torch.library.register_autograd(
        "ham::write_symbols", _write_gradient, setup_context=_save_write, lib=fragment
    )


class Sizes(NamedTuple):
    """Widths of a baseline that reads rows, in both directions if it is attentive, and writes symbols."""

    features: int
    bits: int
    cells: int
    attentive: bool

    @property
    def shapes(self) -> Shapes:
        """Of all its parameters, in the order of the modules."""
        reader = _lstm_shapes("lstm", self.features, self.cells)
        item, width = (2 * self.cells, self.cells) if self.attentive else (0, 0)
        decoder = _decoder_shapes(self.bits, self.cells, item, width)
        return (*reader, *(reader if self.attentive else ()), *decoder)


class Gradient:
    """The gradient of a baseline whose weights are one vector, into another one, in one call a batch.

    By way of autograd a batch of 8 leaves takes three times as long; see `native_training`.
    """

    def __init__(self, weights: Tensor, gradient: Tensor, sizes: Sizes):
        self.calls, self.sizes = loaded(), sizes
        starts = tuple(accumulate((prod(shape) for _, shape in sizes.shapes), initial=0))
        for name, vector in (("weights", weights), ("gradient", gradient)):
            check_laid_out(name, vector, (starts[-1],))
        self.held = weights, gradient
        self.call = call = SequenceCall()
        reader, decoder = call.reader, call.decoder
        directions = 2 if sizes.attentive else 1
        reader.features, reader.cells, reader.directions = sizes.features, sizes.cells, directions
        decoder.bits, decoder.width = sizes.bits, sizes.cells if sizes.attentive else 0
        ours = 4 * directions
        vectors = (weights.data_ptr(), gradient.data_ptr())
        self.pointers = [
            pointers_into(address, part)
            for part in (starts[: ours + 1], starts[ours:])
            for address in vectors
        ]
        reader.parameters, reader.d_parameters, decoder.parameters, decoder.d_parameters = self.pointers
        call.gradient, call.weights = gradient.data_ptr(), gradient.numel()
        self.workspace = buffer(0)

    def of(
        self, inputs: Tensor, lengths: Tensor, asked: Tensor, targets: Tensor, counted: Tensor
    ) -> tuple[float, float, float, float, float]:
        """Fills the gradient; loss, cross-entropy, mean entropy (0), share of wrong examples, norm."""
        sizes, call = self.sizes, self.call
        for name, tensor, dimensions in (("inputs", inputs, 3), ("counted", counted, 2)):
            if not (isinstance(tensor, Tensor) and tensor.dim() == dimensions and tensor.numel()):
                raise InputError(
                    f"{name} must have {dimensions} dimensions, got {getattr(tensor, 'shape', tensor)}"
                )
        batch, symbols = counted.shape
        slots = inputs.shape[1]
        check_laid_out("inputs", inputs, (batch, slots, sizes.features))
        check_laid_out("lengths", lengths, (batch,), torch.int64)
        check_laid_out("asked", asked, (batch,), torch.int64)
        check_laid_out("targets", targets, (batch, symbols, sizes.bits))
        check_laid_out("counted", counted, (batch, symbols), torch.bool)
        reader, decoder = call.reader, call.decoder
        reader.batch, reader.slots, reader.threads = batch, slots, torch.get_num_threads()
        reader.rows, reader.lengths = inputs.data_ptr(), lengths.data_ptr()
        decoder.symbols, decoder.asked, decoder.targets = symbols, asked.data_ptr(), targets.data_ptr()
        call.objective.counted = counted.data_ptr()
        needed = self._run()
        if needed > 0:
            # The next batch may need a little more.
            self.workspace = buffer(needed + needed // 4)
            needed = self._run()
        if needed:
            check_range("lengths", lengths, 1 if sizes.attentive else 0, slots)
            check_range("asked", asked, 0, symbols)
            check_finite("inputs", inputs)
            check_finite("targets", targets)
            raise RuntimeError(f"the engine refused a batch for no reason that was found ({needed})")
        return (*call.terms, call.norm)

    def _run(self) -> int:
        self.call.workspace, self.call.floats = pointer(self.workspace), self.workspace.numel()
        return self.calls.ham_sequence_gradient(ctypes.byref(self.call))
