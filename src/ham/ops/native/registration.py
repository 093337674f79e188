"""The engine's calls as operations of PyTorch: with the shapes of what they give, and their gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ham.ops.native.library import when_loaded

_fragments: list[torch.library.Library] = []


def like_parameters(parameters: Sequence[Tensor], *_: Any) -> list[Tensor]:
    """The shapes of a backward that gives the parameters' gradients alone."""
    return [torch.empty_like(parameter) for parameter in parameters]


def register(
    name: str,
    arguments: str,
    *,
    results: str,
    incoming: str,
    gradients: str = "Tensor[]",
    forward: Callable,
    backward: Callable,
    shapes: Callable,
    gradient_shapes: Callable = like_parameters,
    save: Callable[[Any, tuple, tuple], None],
    gradient: Callable,
) -> None:
    """Have `ham::name` and `ham::name_backward` once the engine is loaded.

    Both take the same arguments; then forward takes whether there is to be a tape, its last result, and backward the
    tape and the incoming gradients. `shapes` and `gradient_shapes` are the fakes, `save` and `gradient` are for
    autograd.
    """

    def define() -> None:
        fragment = torch.library.Library("ham", "FRAGMENT")
        _fragments.append(fragment)
        for which, schema, run, fake in (
            (name, f"({arguments}, bool taped) -> ({results}, Tensor tape)", forward, shapes),
            (
                f"{name}_backward",
                f"({arguments}, Tensor tape, {incoming}) -> {gradients}",
                backward,
                gradient_shapes,
            ),
        ):
            fragment.define(which + schema)
            fragment.impl(which, run, "CPU")
            torch.library.register_fake(f"ham::{which}", fake, lib=fragment)
        torch.library.register_autograd(f"ham::{name}", gradient, setup_context=save, lib=fragment)

    when_loaded(define)
