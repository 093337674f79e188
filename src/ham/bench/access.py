"""One greedy access of the memory, attend and update, beside one softmax read of the same memory."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn import functional as F

from ham import models
from ham.models.memory import forced

SIZE = 20
ACCESSES = 8192
"""Accesses in one call of the engine, so that the call itself does not count."""


def access_jobs(leaves: int, accesses: int = ACCESSES) -> dict[str, Callable[[], object]]:
    """Raw HAM, batch 1, no gradient: a call with many accesses and a call with one.

    The difference is the time of the accesses; filling the memory, which is Θ(n), cancels. The
    descents decide as greedy ones do but are forced to random leaves: left to itself an untrained
    network visits few leaves, and they would stay in the cache.
    """
    model = models.RawHAM(SIZE, 1, size=SIZE, hidden=SIZE, depth=2)
    generator = torch.Generator().manual_seed(leaves)
    inputs = torch.randn(1, accesses + 1, SIZE, generator=generator)
    uniforms = forced(torch.randint(leaves, (1, accesses + 1), generator=generator), leaves)

    def job(timesteps: int) -> Callable[[], object]:
        asked = torch.tensor([timesteps])

        @torch.no_grad()
        def run() -> object:
            return model(
                inputs[:, :timesteps],
                asked,
                asked,
                leaves=leaves,
                uniforms=uniforms[:, :timesteps],
                keep=False,
            )

        return run

    return {"many": job(accesses + 1), "one": job(1)}


def softmax_job(leaves: int) -> Callable[[], object]:
    """One query reads all leaves: keys and values are the memory [n, d] itself."""
    generator = torch.Generator().manual_seed(leaves)
    memory = torch.randn(1, 1, leaves, SIZE, generator=generator)
    query = torch.randn(1, 1, 1, SIZE, generator=generator)
    return lambda: F.scaled_dot_product_attention(query, memory, memory)
