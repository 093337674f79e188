"""What training has in C++ beside whole gradients: the objective of models that decide nothing, and Adam's step.

`ham.train.losses` and `ham.train.adam` define them in PyTorch.
"""

from __future__ import annotations

import ctypes
from ctypes import c_double
from math import sqrt

import torch
from torch import Tensor

from ham.core.errors import InputError
from ham.ops.native.checks import check_dimensions, check_laid_out, check_range, pointer
from ham.ops.native.library import buffer, loaded, structures
from ham.ops.native.structures import TERMS


def cross_entropy(
    outputs: Tensor, targets: Tensor, counted: Tensor, asked: Tensor
) -> tuple[Tensor, float, float]:
    """The objective of a model that decides nothing: its gradient, itself, and the share of wrong examples.

    The outputs are [batch, symbols, bits]; symbols beyond those asked for do not count.
    """
    check_dimensions("outputs", outputs, "batch", "symbols", "bits")
    if not outputs.numel():
        raise InputError(f"outputs must not be empty, got {tuple(outputs.shape)}")
    batch, symbols, bits = outputs.shape
    check_laid_out("outputs", outputs, (batch, symbols, bits))
    check_laid_out("targets", targets, (batch, symbols, bits))
    check_laid_out("counted", counted, (batch, symbols), torch.bool)
    check_laid_out("asked", asked, (batch,), torch.int64)
    check_range("asked", asked, 0, symbols)
    d_outputs, terms = torch.empty_like(outputs), (c_double * len(TERMS))()
    call = structures().HamObjective(
        batch=batch, symbols=symbols, bits=bits, timesteps=symbols, every=1,
        outputs=outputs.data_ptr(), targets=targets.data_ptr(), counted=counted.data_ptr(),
        durations=asked.data_ptr(), d_outputs=d_outputs.data_ptr(), terms=ctypes.addressof(terms),
    )  # fmt: skip
    calls = loaded()
    scratch = buffer(calls.ham_objective_floats(ctypes.byref(call)))
    call.scratch = pointer(scratch)
    calls.ham_objective(ctypes.byref(call))
    return d_outputs, terms[TERMS.index("cross_entropy")], terms[TERMS.index("wrong")]


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
        check_laid_out(name, vector, (weights.numel(),))
    call = structures().HamAdam(
        weights=weights.numel(), weight=weights.data_ptr(), gradient=gradient.data_ptr(), mean=mean.data_ptr(),
        square=square.data_ptr(), mean_rate=1 - mean_decay, square_rate=1 - square_decay, square_decay=square_decay,
        epsilon=epsilon, scale=scale, rate=rate / (1 - mean_decay**steps),
        unbiased_root=sqrt(1 - square_decay**steps),
    )  # fmt: skip
    loaded().ham_adam(ctypes.byref(call))
