"""Useful arithmetic of an episode, and the rate of this machine's matrix product."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch

SGEMM_SIZES = (256, 512, 1024)


@dataclass(frozen=True)
class Widths:
    """Widths of LSTM+HAM with networks of depth 2."""

    features: int = 10
    outputs: int = 11
    cells: int = 20
    size: int = 20
    hidden: int = 20


def episode_flops(leaves: int, widths: Widths | None = None) -> int:
    """Floating-point operations of the matrix products of one full-length example.

    n inputs, n + 1 timesteps, forward and backward. A product y = W x costs |W| multiply-adds
    forward, as many for x's gradient and as many for W's, and each is two operations. Not
    counted: biases, activations, gathers, and what is not computed: the inputs' own gradient, and
    the write of the last timestep, which nobody reads.

    >>> episode_flops(32)
    3110560
    """
    w = widths or Widths()
    levels = leaves.bit_length() - 1
    timesteps, writes = leaves + 1, leaves
    embed_first, embed_second = w.features * w.hidden, w.hidden * w.size
    join = 2 * w.size * w.hidden + w.hidden * w.size
    # SEARCH's first layer is split: the query's half once a timestep, the node's half at every level.
    search = w.cells * w.hidden + levels * (w.size * w.hidden + w.hidden)
    lstm = (w.size + w.cells) * 4 * w.cells
    write = (w.size + w.cells) * 2 * w.hidden + 2 * w.hidden * w.size
    forward = (
        leaves * (embed_first + embed_second)
        + (leaves - 1) * join
        + timesteps * (search + lstm + w.cells * w.outputs)
        + writes * (write + levels * join)
    )
    return 2 * (3 * forward - leaves * embed_first)


def sgemm_jobs() -> dict[str, tuple[Callable[[], object], int]]:
    """Products of square matrices and their operations, to find the machine's best rate."""
    jobs: dict[str, tuple[Callable[[], object], int]] = {}
    for size in SGEMM_SIZES:
        a, b, c = torch.randn(size, size), torch.randn(size, size), torch.empty(size, size)
        jobs[f"sgemm {size}"] = (partial(torch.mm, a, b, out=c), 2 * size**3)
    return jobs
