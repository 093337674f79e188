"""One access of the memory, attend and update, beside one softmax read: in the engine, and called from Python."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn import functional as F

from ham import models
from ham.models.memory import State, forced

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


CALLED_LEAVES, CALLED_BATCH, CALLS = 128, 8, 16
"""Of accesses called from Python, so many in a row."""


def called_jobs() -> dict[str, Callable[[], object]]:
    """`CALLS` sampled accesses with a GRU cell as controller, forward and with backward, and as many softmax reads.

    The cell is part of both, and so is the sum of what the loss would be made of.
    """
    torch.manual_seed(0)
    memory, cell = models.HAM(SIZE, SIZE, SIZE), torch.nn.GRUCell(SIZE, SIZE)
    to_key = torch.nn.Linear(SIZE, SIZE)
    rows = torch.rand(CALLED_BATCH, CALLED_LEAVES, SIZE)
    with torch.no_grad():
        tree = memory.init(rows).tree
    start = torch.zeros(CALLED_BATCH, SIZE)

    def accesses() -> torch.Tensor:
        state, h, loss = State(tree.clone()), start, torch.zeros(())
        for _ in range(CALLS):
            read = memory.attend(state, h)
            h = cell(read.value, h)
            state = memory.update(state, read, h)
            loss = loss + read.log_probs.sum()
        return loss + h.sum()

    def reads() -> torch.Tensor:
        h = start
        for _ in range(CALLS):
            h = cell(F.scaled_dot_product_attention(to_key(h)[:, None], rows, rows)[:, 0], h)
        return h.sum()

    return {
        "access forward": accesses,
        "softmax forward": reads,
        "access both": lambda: accesses().backward(),
        "softmax both": lambda: reads().backward(),
    }
