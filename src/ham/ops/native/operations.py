"""What the engine serves beside single accesses: each operation with its arguments, why not, and how."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ham.core.errors import InputError
from ham.ops import forms
from ham.ops.episode import Decoding, Episode, Networks, Order
from ham.ops.forms import first_reason, why_not_module, why_not_tensor
from ham.ops.native import decoder, episodes, reader, steps, training
from ham.ops.native.networks import (
    named_parameters,
    sizes_of_model,
    starts_of,
    why_not_lstms,
    why_not_networks,
)
from ham.tasks import Bits, Codec

TRAINED = ("lstm+ham", "raw-ham", "lstm", "lstm+a")


class RunEpisode(NamedTuple):
    """A whole run of a model with a memory."""

    networks: Networks
    order: Order
    options: Mapping[str, Any]

    def why_not(self) -> str:
        order = self.order
        if torch.is_grad_enabled() and order.inputs.requires_grad:
            return "the inputs ask for a gradient"
        state, cell = order.start or (None, None)
        if torch.is_grad_enabled() and any(part.requires_grad for part in order.start or ()):
            return "the first state asks for a gradient"
        if order.stock and self.options.get("soft"):
            return "soft attention over a memory that is partly full at first"
        stock = order.stock.values if order.stock else None
        floats = {
            "inputs": order.inputs,
            "uniforms": order.uniforms,
            "state": state,
            "cell": cell,
            "stock": stock,
        }
        return why_not_floats(**floats) or why_not_networks(self.networks)

    def run(self) -> Episode:
        order = self.order._replace(uniforms=None) if self.options.get("soft") else self.order
        return episodes.episode(named_parameters(self.networks), order, **self.options)


class ReadRows(NamedTuple):
    """An LSTM over rows, for the baselines."""

    encoder: nn.LSTM
    rows: Tensor
    lengths: Tensor

    def why_not(self) -> str:
        if torch.is_grad_enabled() and self.rows.requires_grad:
            return "the rows ask for a gradient"
        return (
            why_not_floats(rows=self.rows)
            or why_not_module(self.encoder, "lstm")
            or why_not_lstms([self.encoder])
        )

    def run(self) -> tuple[Tensor, Tensor, Tensor]:
        return reader.read(dict(self.encoder.named_parameters()), self.rows, self.lengths)


class WriteSymbols(NamedTuple):
    """An LSTM that writes symbols, for the baselines; as `decoder.decode`."""

    networks: Decoding
    state: Tensor
    cell: Tensor | None
    asked: Tensor
    targets: Tensor | None
    symbols: int
    memory: Tensor | None
    lengths: Tensor | None
    codec: Codec

    def why_not(self) -> str:
        if self.targets is None and (why := why_not_bits(self.codec)):
            return why
        if torch.is_grad_enabled() and self.targets is not None and self.targets.requires_grad:
            return "the targets ask for a gradient"
        expected = ("additive attention", "linear", "lstm cell", "lstm")
        parts = [part for part in self.networks if part is not None]
        return (
            why_not_floats(state=self.state, cell=self.cell, targets=self.targets, memory=self.memory)
            or first_reason(why_not_module(part, *expected) for part in parts)
            or why_not_lstms(parts)
        )

    def run(self) -> Tensor:
        given = {name: value for name, value in self._asdict().items() if name not in ("networks", "codec")}
        return decoder.decode(named_parameters(self.networks), **given)


class MakeGradient(NamedTuple):
    """What computes the gradient of a whole training batch, for weights that are one vector."""

    model: Any
    weights: Tensor
    gradient: Tensor
    every: int
    options: Any
    pull: float
    codec: Codec

    def why_not(self) -> str:
        if why := why_not_bits(self.codec) or why_not_floats(weights=self.weights, gradient=self.gradient):
            return why
        if (baseline := self.options["baseline"]) not in training.BASELINES:
            return f"the estimator {baseline} is not one of {', '.join(training.BASELINES)}"
        if forms.form_of(self.model) not in TRAINED:
            return f"{type(self.model).__name__} is not one of the models that it trains in one call"
        networks = self.model.networks()
        if isinstance(networks, Networks) and (why := why_not_networks(networks)):
            return why
        if why := why_not_module(self.model, *TRAINED):
            return why
        try:
            sizes = sizes_of_model(self.model)
        except (InputError, TypeError) as error:
            return str(error)
        return "" if sizes else f"this {type(self.model).__name__} is trained by way of autograd"

    def run(self) -> training.Gradient | training.SequenceGradient:
        sizes = sizes_of_model(self.model)
        vectors = training.Vectors(self.weights, self.gradient, starts_of(self.model))
        if isinstance(sizes, training.SequenceSizes):
            return training.SequenceGradient(vectors, sizes)
        assert sizes is not None
        bounds = {**self.model.engine_options(), "pull": self.pull}
        return training.Gradient(vectors, sizes, self.every, training.Options(**self.options), **bounds)


class CrossEntropy(NamedTuple):
    """The objective of a model that decides nothing, with its gradient."""

    outputs: Tensor
    targets: Tensor
    counted: Tensor
    asked: Tensor
    codec: Codec

    def why_not(self) -> str:
        return why_not_bits(self.codec) or why_not_floats(outputs=self.outputs, targets=self.targets)

    def run(self) -> tuple[Tensor, float, float]:
        return steps.cross_entropy(self.outputs, self.targets, self.counted, self.asked)


class AdamStep(NamedTuple):
    """An optimiser's step."""

    weights: Tensor
    gradient: Tensor
    mean: Tensor
    square: Tensor
    step: Mapping[str, Any]

    def why_not(self) -> str:
        return why_not_floats(
            weights=self.weights, gradient=self.gradient, mean=self.mean, square=self.square
        )

    def run(self) -> None:
        steps.adam(self.weights, self.gradient, self.mean, self.square, **self.step)


OPERATIONS: dict[str, Any] = {
    "episode": RunEpisode,
    "read_rows": ReadRows,
    "write_symbols": WriteSymbols,
    "gradient": MakeGradient,
    "cross_entropy": CrossEntropy,
    "adam": AdamStep,
}
"""By the names that `ham.ops.table` has for them."""


def why_not_bits(codec: Codec) -> str:
    return "" if type(codec) is Bits else f"it knows symbols of bits, not of {type(codec).__name__}"


def is_plain(tensor: Tensor, dtype: torch.dtype = torch.float32) -> bool:
    """The usual case at once; only what fails it is worth finding out about in detail."""
    return type(tensor) is Tensor and tensor.dtype is dtype and tensor.is_cpu


def why_not_floats(**tensors: Tensor | None) -> str:
    for name, tensor in tensors.items():
        if tensor is not None and not is_plain(tensor) and (why := why_not_tensor(name, tensor)):
            return why
    return ""
