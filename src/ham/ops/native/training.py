"""Training in C++: a batch's whole gradient in one call.

`ham.train.objective` defines in PyTorch what is computed here. By way of autograd the same takes half as long again:
the engine needs two milliseconds for a batch, and every small tensor operation in between finds the caches full of
other things.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from ctypes import c_void_p
from dataclasses import dataclass
from math import isfinite, prod
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ham.core.errors import InputError
from ham.core.tree import depth_of
from ham.ops.episode import Stock
from ham.ops.native.calls import expected_parameters
from ham.ops.native.checks import (
    LARGEST,
    Shapes,
    check_ends,
    check_finite,
    check_laid_out,
    check_places,
    check_range,
    pointer,
)
from ham.ops.native.decoder import Widths
from ham.ops.native.episodes import ENTROPIES, check_stock
from ham.ops.native.layout import JOINS, Sizes, check_bounds
from ham.ops.native.library import buffer, loaded, structures
from ham.ops.native.structures import TERMS

REWARDS = ("hamming", "log-probability")
BASELINES = ("none", "learned", "leave-one-out")

Terms = tuple[dict[str, float], float]
"""What a batch cost, by `TERMS`, and the norm of its gradient."""


@dataclass(frozen=True)
class Options:
    """What the objective is made of; as in `ham.config.Objective`."""

    runs: int
    reward: str
    baseline: str
    normalise: bool
    discount: float
    rightward: float
    least_entropy: float
    least_square: float

    def fill(self, objective: Any) -> None:
        objective.runs, objective.normalise = self.runs, self.normalise
        objective.reward, objective.baseline = REWARDS.index(self.reward), BASELINES.index(self.baseline)
        objective.discount, objective.rightward = self.discount, self.rightward
        objective.least_entropy, objective.least_square = self.least_entropy, self.least_square


class Vectors(NamedTuple):
    """All weights of a model in one vector, its gradient in another, and where each parameter starts in them."""

    weights: Tensor
    gradient: Tensor
    starts: Mapping[str, int]

    def check(self, shapes: Shapes) -> None:
        """Refuse vectors in which parameters of these shapes do not lie."""
        length = 0
        for name, shape in shapes:
            if name not in self.starts:
                raise InputError(f"the weights have no parameter {name}")
            length = max(length, self.starts[name] + prod(shape))
        for name, vector in (("weights", self.weights), ("gradient", self.gradient)):
            check_laid_out(name, vector, (length,))

    def addresses(self, shapes: Shapes) -> tuple[ctypes.Array, ctypes.Array]:
        """Of these parameters, and of their gradients."""

        def into(vector: Tensor) -> ctypes.Array:
            return (c_void_p * len(shapes))(
                *(vector.data_ptr() + 4 * self.starts[name] for name, _ in shapes)
            )

        return into(self.weights), into(self.gradient)


class _Batches:
    """Batch after batch in one workspace. All that does not change from batch to batch is prepared once."""

    def __init__(self, call: Any, run: Callable, vectors: Vectors):
        self._call, self._run, self._vectors = call, run, vectors
        self._workspace = buffer(0)
        batch = call.batch
        batch.gradient, batch.weights = vectors.gradient.data_ptr(), vectors.gradient.numel()

    def run(self) -> Terms | None:
        """What the batch cost; None if the engine found something wrong with it."""
        needed = self._try()
        if needed > 0:
            # The next batch may need a little more.
            self._workspace = buffer(needed + needed // 4)
            needed = self._try()
        batch = self._call.batch
        return None if needed else (dict(zip(TERMS, batch.terms, strict=True)), batch.norm)

    def _try(self) -> int:
        batch = self._call.batch
        batch.workspace, batch.floats = pointer(self._workspace), self._workspace.numel()
        return self._run(ctypes.byref(self._call))


class Gradient:
    """The gradient of a model with a memory, whose weights are one vector, into another one.

    The vectors stay where they are.
    """

    def __init__(
        self,
        vectors: Vectors,
        sizes: Sizes,
        every: int,
        options: Options,
        *,
        pull: float = 0.0,
        join: str = "rectified",
        top: float = 0.0,
        grid: int = 0,
        cell_bound: float = 0.0,
    ):
        self.sizes, self.every, self.options = sizes, every, options
        baseline: Shapes = (("baseline.weight", (1, sizes.query)), ("baseline.bias", (1,)))
        vectors.check(sizes.parameters + baseline)
        head = vectors.starts["baseline.weight"]
        if vectors.starts["baseline.bias"] != head + sizes.query:
            raise InputError("the baseline's bias must follow its weights")
        if not 1 <= every <= LARGEST:
            raise InputError(f"every must be between 1 and {LARGEST:,}, got {every}")
        check_bounds(sizes.highway, join, top, grid, cell_bound)
        self.call = call = structures().HamGradient()
        for name, value in sizes.fields.items():
            setattr(call.episode, name, value)
        call.episode.every, call.episode.pull = every, pull
        call.episode.join, call.episode.top = JOINS.index(join), top
        call.episode.grid, call.episode.cell_bound = grid, cell_bound
        self.held = vectors.addresses(sizes.parameters)
        call.episode.parameters, call.episode.d_parameters = map(ctypes.addressof, self.held)
        options.fill(call.objective)
        call.objective.head = vectors.weights.data_ptr() + 4 * head
        call.objective.d_head = vectors.gradient.data_ptr() + 4 * head
        self.batches = _Batches(call, loaded().ham_gradient, vectors)

    def of(
        self,
        inputs: Tensor,
        lengths: Tensor,
        asked: Tensor,
        targets: Tensor,
        counted: Tensor,
        uniforms: Tensor,
        *,
        leaves: int,
        reinforce: float,
        exploration: float,
        entropy: str,
        places: Tensor | None = None,
        start: tuple[Tensor, Tensor] | None = None,
        stock: Stock | None = None,
    ) -> Terms:
        """Fills the gradient.

        `asked` is how many of the symbols of `targets` each example runs for; `places`, `start` and `stock` are as
        in `ham.ops.episode.Order`.
        """
        inputs = self._check(inputs, lengths, asked, targets, counted, uniforms, leaves, places, start)
        durations = asked * self.every if self.every > 1 else asked
        episode, objective = self.call.episode, self.call.objective
        episode.batch, episode.leaves, episode.rows = len(inputs), leaves, inputs.shape[1]
        episode.timesteps = counted.shape[1] * self.every
        episode.places = None if places is None else places.data_ptr()
        episode.first_state, episode.first_cell = (
            [part.data_ptr() for part in start] if start else (None, None)
        )
        if stock:
            check_stock(self.sizes, stock)
            check_ends(stock.ends, leaves)
            stock = Stock(stock.values.contiguous(), stock.ends.contiguous())
        episode.kinds = len(stock.ends) if stock else 0
        episode.stock, episode.stock_ends = [part.data_ptr() for part in stock] if stock else (None, None)
        episode.threads = torch.get_num_threads()
        episode.inputs, episode.lengths = inputs.data_ptr(), lengths.data_ptr()
        episode.durations, episode.uniforms = durations.data_ptr(), uniforms.data_ptr()
        objective.targets, objective.counted = targets.data_ptr(), counted.data_ptr()
        objective.reinforce, objective.exploration = reinforce, exploration
        objective.entropy = ENTROPIES.index(entropy)
        terms = self.batches.run()
        if terms is None:
            check_range("lengths", lengths, 0, inputs.shape[1])
            check_range("asked", asked, 0, counted.shape[1])
            check_finite("inputs", inputs)
            check_finite("uniforms", uniforms)
            for part in start or ():
                check_finite("start", part)
            if self.sizes.has_lstm:
                check_runs(self.options.runs, inputs=inputs, lengths=lengths, asked=asked)
            raise RuntimeError("the engine refused a batch for no reason that was found")
        if not isfinite(sum(terms[0].values())):
            check_finite("targets", targets)
        return terms

    def _check(
        self,
        inputs: Tensor,
        lengths: Tensor,
        asked: Tensor,
        targets: Tensor,
        counted: Tensor,
        uniforms: Tensor,
        leaves: int,
        places: Tensor | None,
        start: tuple[Tensor, Tensor] | None,
    ) -> Tensor:
        """Refuse what the engine cannot walk through; the inputs, with a row for every timestep of raw HAM."""
        sizes = self.sizes
        if not (isinstance(counted, Tensor) and counted.dim() == 2 and counted.numel()):
            raise InputError(f"counted must be [batch, symbols], got {getattr(counted, 'shape', counted)}")
        batch, symbols = counted.shape
        timesteps = symbols * self.every
        slots = inputs.shape[1] if sizes.has_lstm and inputs.dim() == 3 else timesteps
        if inputs.dim() == 3 and inputs.shape[1] != slots:
            inputs = nn.functional.pad(inputs, (0, 0, 0, slots - inputs.shape[1])).contiguous()
        if sizes.has_lstm:
            if slots > leaves:
                raise InputError(f"{slots} items do not fit into a memory of {leaves} leaves")
            if places is not None:
                check_laid_out("places", places, (slots,), torch.int64)
                check_places(places, leaves)
        elif places is not None or start is not None:
            raise InputError("places and start are for LSTM+HAM")
        runs = self.options.runs
        if self.options.baseline == "leave-one-out" and (runs < 2 or batch % runs):
            raise InputError(
                f"leave-one-out needs at least two runs that divide the batch, got {runs} of {batch}"
            )
        if sizes.has_lstm and (runs < 1 or batch % runs):
            raise InputError(f"the batch must be a multiple of the runs of an input, got {batch} and {runs}")
        check_laid_out("inputs", inputs, (batch, slots, sizes.bits))
        check_answers(batch, symbols, sizes.outputs, lengths, asked, targets, counted)
        check_laid_out("uniforms", uniforms, (batch, timesteps, depth_of(leaves)))
        for part in start or ():
            check_laid_out("start", part, (batch, sizes.query))
        return inputs


class SequenceSizes(NamedTuple):
    """Widths of a baseline that reads rows, in both directions if it is attentive, and writes symbols."""

    features: int
    bits: int
    cells: int
    attentive: bool

    @property
    def directions(self) -> int:
        return 2 if self.attentive else 1

    @property
    def reader(self) -> Shapes:
        widths = {"features": self.features, "cells": self.cells, "directions": self.directions}
        return expected_parameters("reader", **widths)

    @property
    def decoder(self) -> Widths:
        item, width = (2 * self.cells, self.cells) if self.attentive else (0, 0)
        return Widths(self.bits, self.cells, item, width)


class SequenceGradient:
    """The gradient of a baseline whose weights are one vector, into another one."""

    def __init__(self, vectors: Vectors, sizes: SequenceSizes):
        self.sizes = sizes
        ours, theirs = sizes.reader, sizes.decoder.parameters
        vectors.check(ours + theirs)
        self.call = call = structures().HamSequence()
        reader, decoder = call.reader, call.decoder
        reader.features, reader.cells, reader.directions = sizes.features, sizes.cells, sizes.directions
        decoder.bits, decoder.width = sizes.bits, sizes.decoder.width
        self.held = vectors.addresses(ours), vectors.addresses(theirs)
        reader.parameters, reader.d_parameters = map(ctypes.addressof, self.held[0])
        decoder.parameters, decoder.d_parameters = map(ctypes.addressof, self.held[1])
        self.batches = _Batches(call, loaded().ham_sequence_gradient, vectors)

    def of(self, inputs: Tensor, lengths: Tensor, asked: Tensor, targets: Tensor, counted: Tensor) -> Terms:
        """Fills the gradient; the entropy is 0."""
        sizes, call = self.sizes, self.call
        for name, tensor, dimensions in (("inputs", inputs, 3), ("counted", counted, 2)):
            if not (isinstance(tensor, Tensor) and tensor.dim() == dimensions and tensor.numel()):
                raise InputError(
                    f"{name} must have {dimensions} dimensions, got {getattr(tensor, 'shape', tensor)}"
                )
        batch, symbols = counted.shape
        slots = inputs.shape[1]
        check_laid_out("inputs", inputs, (batch, slots, sizes.features))
        check_answers(batch, symbols, sizes.bits, lengths, asked, targets, counted)
        reader, decoder = call.reader, call.decoder
        reader.batch, reader.slots, reader.threads = batch, slots, torch.get_num_threads()
        reader.rows, reader.lengths = inputs.data_ptr(), lengths.data_ptr()
        decoder.symbols, decoder.asked, decoder.targets = symbols, asked.data_ptr(), targets.data_ptr()
        call.objective.counted = counted.data_ptr()
        terms = self.batches.run()
        if terms is None:
            check_range("lengths", lengths, 1 if sizes.attentive else 0, slots)
            check_range("asked", asked, 0, symbols)
            check_finite("inputs", inputs)
            check_finite("targets", targets)
            raise RuntimeError("the engine refused a batch for no reason that was found")
        return terms


def check_runs(runs: int, **tensors: Tensor) -> None:
    """Refuse examples that should be runs of one input, whose tree they share, and are not."""
    for name, tensor in tensors.items():
        of_inputs = tensor.unflatten(0, (-1, runs))
        if not torch.equal(of_inputs, of_inputs[:, :1].expand_as(of_inputs)):
            raise InputError(f"the {runs} runs of an input must be the same, but their {name} differ")


def check_answers(
    batch: int, symbols: int, bits: int, lengths: Tensor, asked: Tensor, targets: Tensor, counted: Tensor
) -> None:
    """Refuse what the engine cannot walk through, of what every batch has."""
    check_laid_out("lengths", lengths, (batch,), torch.int64)
    check_laid_out("asked", asked, (batch,), torch.int64)
    check_laid_out("targets", targets, (batch, symbols, bits))
    check_laid_out("counted", counted, (batch, symbols), torch.bool)
