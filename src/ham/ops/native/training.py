"""Training in C++: a batch's whole gradient in one call, and Adam's step in another.

`ham.train.objective` and `ham.train.adam` define in PyTorch what is computed here. By way of
autograd the same takes half as long again: the engine needs two milliseconds for a batch, and every
small tensor operation in between finds the caches full of other things.
"""

from __future__ import annotations

import ctypes
from ctypes import c_double
from dataclasses import dataclass
from math import isfinite, sqrt

import torch
from torch import Tensor

from ham.core.errors import InputError
from ham.core.tree import depth_of
from ham.ops.episode import Stock
from ham.ops.native import layout
from ham.ops.native.episodes import ENTROPIES
from ham.ops.native.layout import LARGEST, Sizes, pointer
from ham.ops.native.library import buffer, loaded
from ham.ops.native.structures import AdamCall, GradientCall, ObjectiveCall

REWARDS = ("hamming", "log-probability")
BASELINES = ("none", "learned", "leave-one-out")


@dataclass(frozen=True)
class Options:
    """What the objective is made of; as in `ham.config.Objective`."""

    runs: int
    reward: str
    baseline: str
    normalise: bool
    entropy: str
    discount: float
    least_entropy: float
    least_square: float

    def fill(self, objective: ObjectiveCall) -> None:
        objective.runs, objective.normalise = self.runs, self.normalise
        objective.reward, objective.baseline = REWARDS.index(self.reward), BASELINES.index(self.baseline)
        objective.entropy, objective.discount = ENTROPIES.index(self.entropy), self.discount
        objective.least_entropy, objective.least_square = self.least_entropy, self.least_square


class Gradient:
    """The gradient of a model whose weights are one vector, into another one.

    The vectors hold the episode's parameters in the order of the modules, then the learned
    baseline's. They stay where they are, so all that does not change from batch to batch is
    prepared here once.
    """

    def __init__(
        self,
        weights: Tensor,
        gradient: Tensor,
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
        self.calls = loaded()
        self.sizes, self.every, self.options = sizes, every, options
        starts = layout.starts_of(sizes)
        if weights.numel() != starts[-1] + sizes.query + 1:
            raise InputError(
                f"the weights must be {starts[-1]} and a baseline of {sizes.query + 1}, got {weights.numel()}"
            )
        for name, vector in (("weights", weights), ("gradient", gradient)):
            layout.check_laid_out(name, vector, (weights.numel(),))
        if not 1 <= every <= LARGEST:
            raise InputError(f"every must be between 1 and {LARGEST:,}, got {every}")
        self.held = weights, gradient
        self.call = call = GradientCall()
        for name, value in sizes.fields().items():
            setattr(call.episode, name, value)
        layout.check_bounds(sizes.highway, join, top, grid, cell_bound)
        call.episode.every, call.episode.pull = every, pull
        call.episode.join, call.episode.top = layout.JOINS.index(join), top
        call.episode.grid, call.episode.cell_bound = grid, cell_bound
        self.pointers = [layout.pointers_into(vector.data_ptr(), starts) for vector in (weights, gradient)]
        call.episode.parameters, call.episode.d_parameters = self.pointers
        options.fill(call.objective)
        call.objective.head = weights.data_ptr() + 4 * starts[-1]
        call.objective.d_head = gradient.data_ptr() + 4 * starts[-1]
        call.gradient, call.weights = gradient.data_ptr(), gradient.numel()
        self.workspace = buffer(0)

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
        places: Tensor | None = None,
        start: tuple[Tensor, Tensor] | None = None,
        stock: Stock | None = None,
    ) -> tuple[float, float, float, float, float]:
        """Fills the gradient; loss, cross-entropy, mean entropy, share of wrong examples, norm.

        `asked` is how many of the symbols of `targets` each example runs for; `places`, `start` and `stock`
        are as in `EpisodeOptions`.
        """
        sizes, call = self.sizes, self.call
        if not (isinstance(counted, Tensor) and counted.dim() == 2 and counted.numel()):
            raise InputError(f"counted must be [batch, symbols], got {getattr(counted, 'shape', counted)}")
        batch, symbols = counted.shape
        timesteps = symbols * self.every
        slots = inputs.shape[1] if sizes.has_lstm and inputs.dim() == 3 else timesteps
        if inputs.dim() == 3 and inputs.shape[1] != slots:
            inputs = layout.padded(inputs, slots).contiguous()
        if sizes.has_lstm:
            if slots > leaves:
                raise InputError(f"{slots} items do not fit into a memory of {leaves} leaves")
            if places is not None:
                layout.check_laid_out("places", places, (slots,), torch.int64)
                layout.check_places(places, leaves)
        elif places is not None or start is not None:
            raise InputError("places and start are for LSTM+HAM")
        if stock:
            if sizes.has_lstm:
                raise InputError("a stock is for raw HAM")
            layout.check_stock(stock, sizes.width)
            layout.check_ends(stock.ends, leaves)
            stock = Stock(stock.values.contiguous(), stock.ends.contiguous())
        if self.options.baseline == "leave-one-out" and (self.options.runs < 2 or batch % self.options.runs):
            raise InputError(
                f"leave-one-out needs at least two runs that divide the batch, "
                f"got {self.options.runs} of {batch}"
            )
        given = (
            ("inputs", inputs, (batch, slots, sizes.bits), torch.float32),
            ("lengths", lengths, (batch,), torch.int64),
            ("asked", asked, (batch,), torch.int64),
            ("targets", targets, (batch, symbols, sizes.outputs), torch.float32),
            ("counted", counted, (batch, symbols), torch.bool),
            ("uniforms", uniforms, (batch, timesteps, depth_of(leaves)), torch.float32),
        )
        for name, tensor, shape, dtype in given:
            layout.check_laid_out(name, tensor, shape, dtype)
        for part in start or ():
            layout.check_laid_out("start", part, (batch, sizes.query))
        durations = asked * self.every if self.every > 1 else asked

        episode, objective = call.episode, call.objective
        episode.batch, episode.leaves, episode.rows, episode.timesteps = batch, leaves, slots, timesteps
        episode.places = None if places is None else places.data_ptr()
        episode.first_state, episode.first_cell = (
            [part.data_ptr() for part in start] if start else (None, None)
        )
        episode.kinds = len(stock.ends) if stock else 0
        episode.stock, episode.stock_ends = [part.data_ptr() for part in stock] if stock else (None, None)
        episode.threads = torch.get_num_threads()
        episode.inputs, episode.lengths = inputs.data_ptr(), lengths.data_ptr()
        episode.durations, episode.uniforms = durations.data_ptr(), uniforms.data_ptr()
        objective.targets, objective.counted = targets.data_ptr(), counted.data_ptr()
        objective.reinforce, objective.exploration = reinforce, exploration
        needed = self._run()
        if needed > 0:
            # The next batch may need a little more.
            self.workspace = buffer(needed + needed // 4)
            needed = self._run()
        if needed:
            layout.check_range("lengths", lengths, 0, slots)
            layout.check_range("asked", asked, 0, symbols)
            layout.check_finite("inputs", inputs)
            layout.check_finite("uniforms", uniforms)
            for part in start or ():
                layout.check_finite("start", part)
            raise RuntimeError(f"the engine refused a batch for no reason that was found ({needed})")
        if not isfinite(call.terms[0]):
            layout.check_finite("targets", targets)
        return (*call.terms, call.norm)

    def _run(self) -> int:
        self.call.workspace, self.call.floats = pointer(self.workspace), self.workspace.numel()
        return self.calls.ham_gradient(ctypes.byref(self.call))


def cross_entropy(
    outputs: Tensor, targets: Tensor, counted: Tensor, asked: Tensor
) -> tuple[Tensor, float, float]:
    """The objective of a model that decides nothing: its gradient, itself, and the share of wrong examples.

    The outputs are [batch, symbols, bits]; symbols beyond those asked for do not count.
    """
    if not (isinstance(outputs, Tensor) and outputs.dim() == 3 and outputs.numel()):
        raise InputError(f"outputs must be [batch, symbols, bits], got {getattr(outputs, 'shape', outputs)}")
    batch, symbols, bits = outputs.shape
    layout.check_laid_out("outputs", outputs, (batch, symbols, bits))
    layout.check_laid_out("targets", targets, (batch, symbols, bits))
    layout.check_laid_out("counted", counted, (batch, symbols), torch.bool)
    layout.check_laid_out("asked", asked, (batch,), torch.int64)
    layout.check_range("asked", asked, 0, symbols)
    d_outputs, terms = torch.empty_like(outputs), (c_double * 4)()
    call = ObjectiveCall(
        batch=batch, symbols=symbols, bits=bits, timesteps=symbols, every=1,
        outputs=outputs.data_ptr(), targets=targets.data_ptr(), counted=counted.data_ptr(),
        durations=asked.data_ptr(), d_outputs=d_outputs.data_ptr(), terms=ctypes.addressof(terms),
    )  # fmt: skip
    calls = loaded()
    scratch = buffer(calls.ham_objective_floats(ctypes.byref(call)))
    call.scratch = pointer(scratch)
    calls.ham_objective(ctypes.byref(call))
    return d_outputs, terms[1], terms[3]


def adam(
    weights: Tensor,
    gradient: Tensor,
    mean: Tensor,
    square: Tensor,
    *,
    scale: float,
    rate: float,
    mean_decay: float,
    square_decay: float,
    epsilon: float,
    steps: int,
) -> None:
    """Adam's step number `steps`, on a gradient that is scaled first."""
    vectors = {"weights": weights, "gradient": gradient, "mean": mean, "square": square}
    for name, vector in vectors.items():
        layout.check_laid_out(name, vector, (weights.numel(),))
    call = AdamCall(
        weights.numel(),
        *(vector.data_ptr() for vector in vectors.values()),
        1 - mean_decay,
        1 - square_decay,
        square_decay,
        epsilon,
        scale,
        rate / (1 - mean_decay**steps),
        sqrt(1 - square_decay**steps),
    )
    loaded().ham_adam(ctypes.byref(call))
