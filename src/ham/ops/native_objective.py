"""The training objective in C++: loss and gradients in one call.

`ham.learn.objective` defines it in PyTorch; this computes the same.
"""

from __future__ import annotations

import ctypes
from ctypes import c_double, c_float, c_int64, c_void_p

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from ham.ops.native import library

REWARDS = ("hamming", "log-probability")
BASELINES = ("none", "learned", "leave-one-out")
ENTROPIES = ("inverse", "negative")


class _Objective(ctypes.Structure):
    """HamObjective of csrc/objective.h."""

    _fields_ = (
        *((name, c_int64) for name in "batch symbols bits timesteps levels every runs".split()),
        *((name, c_int64) for name in "reward baseline normalise entropy".split()),
        *((name, c_float) for name in "discount reinforce exploration least_entropy least_square".split()),
        *((name, c_void_p) for name in "outputs targets counted durations turn_logits turns".split()),
        *((name, c_void_p) for name in "predictions d_outputs d_turn_logits d_predictions".split()),
        *((name, c_void_p) for name in "scratch terms".split()),
    )


class _Loss(torch.autograd.Function):
    @staticmethod
    def forward(ctx, value, gradients, *_differentiable):
        ctx.gradients = gradients
        return torch.tensor(value)

    @staticmethod
    @once_differentiable
    def backward(ctx, scale):
        if scale != 1:
            return None, None, *(part * scale for part in ctx.gradients)
        return None, None, *ctx.gradients


def objective(
    outputs: Tensor,
    targets: Tensor,
    counted: Tensor,
    durations: Tensor,
    turn_logits: Tensor,
    turns: Tensor,
    queries: Tensor,
    head: nn.Linear | None,
    *,
    every: int,
    runs: int,
    reward: str,
    baseline: str,
    normalise: bool,
    entropy: str,
    discount: float,
    reinforce: float,
    exploration: float,
    least_entropy: float,
    least_square: float,
) -> tuple[Tensor, float, float, float]:
    """The loss, and as plain numbers: cross-entropy, mean entropy, share of wrong examples.

    `head` is the learned baseline, which predicts the return from a query.
    """
    batch, symbols, bits = outputs.shape
    timesteps, levels = turn_logits.shape[1:]
    given = {"targets": targets, "counted": counted, "durations": durations, "turns": turns}
    expected = {
        "targets": ((batch, symbols, bits), torch.float32),
        "counted": ((batch, symbols), torch.bool),
        "durations": ((batch,), torch.int64),
        "turns": ((batch, timesteps, levels), torch.bool),
    }
    for name, tensor in given.items():
        if (tuple(tensor.shape), tensor.dtype) != expected[name]:
            raise ValueError(f"{name} must be {expected[name]}, got {(tuple(tensor.shape), tensor.dtype)}")
    if timesteps != symbols * every:
        raise ValueError(f"{symbols} symbols at {every} timesteps each are not {timesteps} timesteps")
    if baseline == "leave-one-out" and (runs < 2 or batch % runs):
        raise ValueError(
            f"leave-one-out needs at least two runs that divide the batch, got {runs} of {batch}"
        )
    if (baseline == "learned") != (head is not None):
        raise ValueError("a head is needed for the learned baseline, and only for it")

    parts = [outputs, targets, counted, durations, turn_logits, turns]
    held = [part.detach().contiguous() for part in parts]
    call = _Objective(batch, symbols, bits, timesteps, levels, every, runs)
    call.reward, call.baseline = REWARDS.index(reward), BASELINES.index(baseline)
    call.normalise, call.entropy = normalise, ENTROPIES.index(entropy)
    call.discount, call.reinforce, call.exploration = discount, reinforce, exploration
    call.least_entropy, call.least_square = least_entropy, least_square
    call.outputs, call.targets, call.counted, call.durations, call.turn_logits, call.turns = (
        part.data_ptr() for part in held
    )
    d_outputs, d_turn_logits = torch.empty_like(held[0]), torch.empty_like(held[4])
    call.d_outputs, call.d_turn_logits = d_outputs.data_ptr(), d_turn_logits.data_ptr()
    if head is not None:
        # Its gradients are two short products: as a node of autograd's it would take longer than
        # everything else here.
        seen = queries.detach().reshape(batch * timesteps, -1)
        predictions = torch.addmv(head.bias.detach(), seen, head.weight.detach()[0])
        d_predictions = torch.empty_like(predictions)
        call.predictions, call.d_predictions = predictions.data_ptr(), d_predictions.data_ptr()
    scratch = torch.empty(batch * (symbols * (bits + 2) + timesteps) + timesteps * levels)
    terms = (c_double * 4)()
    call.scratch, call.terms = scratch.data_ptr(), ctypes.addressof(terms)
    library().ham_objective(ctypes.byref(call))
    gradients, differentiable = [d_outputs, d_turn_logits], [outputs, turn_logits]
    if head is not None:
        gradients += [(d_predictions @ seen)[None], d_predictions.sum(0, keepdim=True)]
        differentiable += [head.weight, head.bias]
    loss = _Loss.apply(terms[0], gradients, *differentiable)
    return loss, terms[1], terms[2], terms[3]
