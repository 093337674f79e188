"""The engine from several threads at once, each call on threads of its own: the bits of one after the other.

Under the thread sanitizer (tests/ops/sanitize.sh) the same calls show any two that touch one place at once.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor

import ham
from ham import tasks
from ham.config import Architecture
from ham.ops import native

pytestmark = pytest.mark.skipif(not native.available(), reason=native.why_not() or "available")

CALLERS, ROUNDS = 4, 3
FEATURES = tasks.get("reverse").features


@pytest.fixture(autouse=True)
def threads(plain_pytorch):
    ham.set_backend("native")
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def models(kind: str, task: str) -> list[torch.nn.Module]:
    """A model for each caller."""
    torch.manual_seed(0)
    return [Architecture(kind=kind).build(tasks.get(task)) for _ in range(CALLERS)]


def memories(different: int) -> list[torch.nn.Module]:
    """A memory for each caller, or one for all of them: its state is a value of theirs."""
    torch.manual_seed(0)
    made = [ham.HAM(features=FEATURES, query=20, size=20).eval() for _ in range(different)]
    return (made * CALLERS)[:CALLERS]


def episodes(model: torch.nn.Module, given: torch.Generator) -> list[Tensor]:
    """Whole episodes, forward and backward: their outputs and the gradient of their sum."""
    outputs = []
    for _ in range(ROUNDS):
        rows = torch.rand(70, 8, FEATURES, generator=given).round()
        lengths = torch.full((70,), 8)
        made = model(rows, lengths, lengths, leaves=8, keep=True)
        made.outputs.sum().backward()
        outputs.append(made.outputs.detach())
    return [*outputs, *(weight.grad for weight in model.parameters() if weight.grad is not None)]


def accesses(memory: torch.nn.Module, given: torch.Generator) -> list[Tensor]:
    """Single accesses: what was read."""
    values = []
    with torch.no_grad():
        state = memory.init(torch.rand(3, 100, FEATURES, generator=given))
        for _ in range(10 * ROUNDS):
            query = torch.rand(3, 20, generator=given)
            read = memory.attend(state, query)
            state = memory.update(state, read, query)
            values.append(read.value)
    return values


WORK = {
    "episodes of LSTM+HAM": (episodes, lambda: models("lstm+ham", "reverse")),
    "episodes with soft attention": (episodes, lambda: models("dham", "reverse")),
    "sequences": (episodes, lambda: models("lstm+a", "reverse")),
    "accesses": (accesses, lambda: memories(CALLERS)),
    "accesses to one memory": (accesses, lambda: memories(1)),
}


@pytest.mark.parametrize("work", WORK)
def test_callers_at_once_get_the_bits_of_one_after_the_other(work):
    call, make = WORK[work]

    def generators() -> list[torch.Generator]:
        return [torch.Generator().manual_seed(caller) for caller in range(CALLERS)]

    alone = list(map(call, make(), generators()))
    with ThreadPoolExecutor(CALLERS) as pool:
        together = list(pool.map(call, make(), generators()))
    for one, other in zip(alone, together, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
