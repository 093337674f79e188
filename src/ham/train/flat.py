"""All parameters of a model as one vector, so that clipping, Adam and averaging are one call each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from jaxtyping import Float
from torch import Tensor

from ham.models import Model


class FlatParameters:
    """Moves a model's parameters and gradients into two vectors; the model keeps views of them."""

    def __init__(self, model: Model):
        parameters = list(model.parameters())
        self.weights: Float[Tensor, "parameters"] = torch.cat([p.detach().flatten() for p in parameters])
        self.gradient = torch.zeros_like(self.weights)
        sizes = [p.numel() for p in parameters]
        views = zip(parameters, self.weights.split(sizes), self.gradient.split(sizes), strict=True)
        for parameter, weights, gradient in views:
            parameter.data = weights.view_as(parameter)
            parameter.grad = gradient.view_as(parameter)

    def load(self, values: Float[Tensor, "parameters"]) -> None:
        """Overwrite the model's weights."""
        self.weights.copy_(values)

    @contextmanager
    def borrowed(self, values: Float[Tensor, "parameters"]) -> Iterator[None]:
        """Let the model have other weights for a while."""
        own = self.weights.clone()
        self.load(values)
        try:
            yield
        finally:
            self.load(own)
