"""The baselines' LSTMs in the C++ engine: one that reads rows, and one that writes symbols.

PyTorch runs them step by step, with a dozen small kernels each; here a whole sequence is one call,
forward and one backward, on the panels that episodes use. What they compute is what the modules of
`ham.models` define in plain PyTorch. The rows and the symbols fed back get no gradient: they are
data. As in `native`, all checking happens here, before any pointer is passed on.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from ctypes import c_int64
from functools import cache
from itertools import accumulate
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ham.core.errors import InputError
from ham.ops.interface import DecoderCall, ReaderCall, SequenceCall
from ham.ops.native import (
    LARGEST,
    Shapes,
    Workspace,
    _check_parameters,
    _matrix,
    _needs_tape,
    _pointer,
    _pointers,
    _saved,
    check,
    check_finite,
    check_laid_out,
    check_range,
    library,
    pointers_into,
)


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
    cells = _matrix("lstm weight_hh", parameters[1])[1]
    rows = _data("rows", rows)
    batch, slots, features = rows.shape
    directions = len(parameters) // 4
    shapes = _lstm_shapes("lstm", features, cells) + _lstm_shapes("reverse lstm", features, cells)
    _check_parameters(parameters, shapes[: len(parameters)])
    check("lengths", lengths, (batch,), torch.int64)
    # Backward lays out the tape by these once more: nobody else may change them meanwhile.
    lengths = lengths.clone()
    check_range("lengths", lengths, 0, slots)
    call = ReaderCall(
        batch=batch, slots=slots, features=features, cells=cells, directions=directions,
        rows=rows.data_ptr(), lengths=lengths.data_ptr(),
    )  # fmt: skip
    if _needs_tape(*parameters):
        return _Read.apply(call, (rows, lengths), *parameters)
    return _read(call, parameters)[0]


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
    bits, cells = _matrix("output weight", parameters[-2])[0], _matrix("lstm weight_hh", parameters[-5])[1]
    width = _matrix("score weight", parameters[3])[1] if attentive else 0
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
        lengths = lengths.clone()
        # A mean over nothing is no number.
        check_range("lengths", lengths, 1, min(items, LARGEST - 1))
    _check_parameters(parameters, _decoder_shapes(bits, cells, item, width))
    check("asked", asked, (batch,), torch.int64)
    asked = asked.clone()
    check_range("asked", asked, 0, symbols)
    if targets is not None:
        targets = _data("targets", targets)
        check("targets", targets, (batch, symbols, bits))
    call = DecoderCall(
        batch=batch, symbols=symbols, bits=bits, cells=cells, directions=directions, items=items, item=item,
        width=width, asked=asked.data_ptr(), targets=_pointer(targets), lengths=_pointer(lengths),
    )  # fmt: skip
    held = (asked, targets, lengths)
    other = cell if memory is None else memory
    assert other is not None
    if _needs_tape(state, other, *parameters):
        return _Decode.apply(call, held, state, other, *parameters)
    return _decode(call, state, other, parameters)[0]


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
    """Rows that are finite and get no gradient, contiguous."""
    if not isinstance(tensor, Tensor) or tensor.dim() != 3:
        raise InputError(f"{name} must be [batch, time, bits], got {getattr(tensor, 'shape', tensor)}")
    check(name, tensor, tuple(tensor.shape))
    if torch.is_grad_enabled() and tensor.requires_grad:
        raise InputError(f"{name} get no gradient from the native engine; use the reference backend")
    if not tensor.shape[0]:
        raise InputError("a batch must have at least one example")
    tensor = tensor.detach().contiguous()
    check_finite(name, tensor)
    return tensor


def _sizes_of(call: ReaderCall | DecoderCall, sizes_of: Callable) -> tuple[int, int, int]:
    sizes = (c_int64 * 3)()
    sizes_of(ctypes.byref(call), sizes)
    return sizes[0], sizes[1], sizes[2]


def _run_forward(call: ReaderCall | DecoderCall, name: str) -> Workspace | None:
    call.threads = torch.get_num_threads()
    calls = library()
    of_tape, of_scratch, _ = _sizes_of(call, getattr(calls, f"ham_{name}_sizes"))
    tape, scratch = Workspace(of_tape) if call.taped else None, Workspace(of_scratch)
    call.tape, call.scratch = tape.pointer if tape else None, scratch.pointer
    getattr(calls, f"ham_{name}_forward")(ctypes.byref(call))
    return tape


def _run_backward(call: ReaderCall | DecoderCall, name: str, parameters: Sequence[Tensor]) -> list[Tensor]:
    gradients = [torch.empty_like(parameter) for parameter in parameters]
    pointers, d_pointers = _pointers(parameters), _pointers(gradients)
    call.parameters, call.d_parameters = pointers, d_pointers
    call.threads = torch.get_num_threads()
    calls = library()
    scratch = Workspace(_sizes_of(call, getattr(calls, f"ham_{name}_sizes"))[2])
    call.scratch = scratch.pointer
    getattr(calls, f"ham_{name}_backward")(ctypes.byref(call))
    return gradients


def _read(
    call: ReaderCall, parameters: Sequence[Tensor]
) -> tuple[tuple[Tensor, Tensor, Tensor], Workspace | None]:
    states = torch.empty(call.batch, call.slots, call.directions * call.cells)
    state, cell = (torch.empty(call.batch, call.directions, call.cells) for _ in range(2))
    call.states, call.last_state, call.last_cell = states.data_ptr(), state.data_ptr(), cell.data_ptr()
    pointers = _pointers(parameters)
    call.parameters = pointers
    return (states, state, cell), _run_forward(call, "reader")


class _Read(torch.autograd.Function):
    @staticmethod
    def forward(ctx, call, held, *parameters):
        call.taped = 1
        results, tape = _read(call, parameters)
        ctx.set_materialize_grads(False)
        ctx.call, ctx.held = call, held
        ctx.save_for_backward(_saved(tape), *parameters)
        return results

    @staticmethod
    @once_differentiable
    def backward(ctx, d_states, d_state, d_cell):
        _tape, *parameters = ctx.saved_tensors
        incoming = [d if d is None else d.contiguous() for d in (d_states, d_state, d_cell)]
        if all(d is None for d in incoming):
            return (None,) * (2 + len(parameters))
        call = ctx.call
        call.d_states, call.d_last_state, call.d_last_cell = map(_pointer, incoming)
        return None, None, *_run_backward(call, "reader", parameters)


def _decode(
    call: DecoderCall, state: Tensor, other: Tensor, parameters: Sequence[Tensor]
) -> tuple[Tensor, Workspace | None]:
    # They come from weights, as the parameters do: a NaN in them is to come out, not to be refused.
    state, other = state.detach().contiguous(), other.detach().contiguous()
    call.state = state.data_ptr()
    call.cell, call.memory = (None, other.data_ptr()) if call.items else (other.data_ptr(), None)
    outputs = torch.empty(call.batch, call.symbols, call.bits)
    call.outputs = outputs.data_ptr()
    pointers = _pointers(parameters)
    call.parameters = pointers
    return outputs, _run_forward(call, "decoder")


class _Decode(torch.autograd.Function):
    """The tape holds what was given, so backward needs only its shapes."""

    @staticmethod
    def forward(ctx, call, held, state, other, *parameters):
        call.taped = 1
        outputs, tape = _decode(call, state, other, parameters)
        ctx.call, ctx.held, ctx.shapes = call, held, (state.shape, other.shape)
        ctx.save_for_backward(_saved(tape), *parameters)
        return outputs

    @staticmethod
    @once_differentiable
    def backward(ctx, d_outputs):
        _tape, *parameters = ctx.saved_tensors
        call, d_outputs = ctx.call, d_outputs.contiguous()
        d_state, d_other = (torch.empty(shape) for shape in ctx.shapes)
        call.d_outputs, call.d_state = d_outputs.data_ptr(), d_state.data_ptr()
        call.d_cell, call.d_memory = (None, d_other.data_ptr()) if call.items else (d_other.data_ptr(), None)
        return None, None, d_state, d_other, *_run_backward(call, "decoder", parameters)


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
        self.calls, self.sizes = library(), sizes
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
        self.workspace = Workspace(0)

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
            self.workspace = Workspace(needed)
            needed = self._run()
        if needed:
            check_range("lengths", lengths, 1 if sizes.attentive else 0, slots)
            check_range("asked", asked, 0, symbols)
            check_finite("inputs", inputs)
            check_finite("targets", targets)
            raise RuntimeError(f"the engine refused a batch for no reason that was found ({needed})")
        return (*call.terms, call.norm)

    def _run(self) -> int:
        self.call.workspace, self.call.floats = self.workspace.pointer, self.workspace.floats
        return self.calls.ham_sequence_gradient(ctypes.byref(self.call))
