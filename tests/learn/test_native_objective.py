"""The native objective against its definition in PyTorch, values and gradients."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import ham
from ham.config import Training
from ham.learn.objective import Examples, objective
from ham.ops import Episode


@st.composite
def cases(draw):
    runs = draw(st.integers(2, 4))
    return {
        "seed": draw(st.integers(0, 1 << 16)),
        "batch": runs * draw(st.integers(1, 6)),
        "runs": runs,
        "symbols": draw(st.integers(1, 9)),
        "bits": draw(st.integers(1, 12)),
        "every": draw(st.integers(1, 3)),
        "depth": draw(st.integers(1, 10)),
        "scale": draw(st.sampled_from([0.1, 1.0, 10.0, 80.0])),
        "reward": draw(st.sampled_from(["hamming", "log-probability"])),
        "baseline": draw(st.sampled_from(["none", "learned", "leave-one-out"])),
        "entropy": draw(st.sampled_from(["inverse", "negative"])),
        "normalise": draw(st.booleans()),
        "exploration": draw(st.sampled_from([0.0, 1e-3])),
    }


def terms_and_gradients(case: dict, backend: str, dtype: torch.dtype):
    ham.set_backend(backend)
    rng = np.random.default_rng(case["seed"])
    batch, symbols, every = case["batch"], case["symbols"], case["every"]
    time = symbols * every
    asked = torch.from_numpy(rng.integers(0, symbols, batch, endpoint=True))
    counted = (torch.arange(symbols) < asked[:, None]) & torch.from_numpy(rng.random((batch, symbols)) < 0.8)

    def leaf(*shape: int) -> torch.Tensor:
        values = torch.from_numpy(rng.normal(size=shape) * case["scale"]).float()
        return values.to(dtype).requires_grad_()

    outputs = leaf(batch, symbols, case["bits"])
    turn_logits = leaf(batch, time, case["depth"])
    queries = leaf(batch, time, 3).detach()
    turns = torch.from_numpy(rng.random((batch, time, case["depth"])) < 0.5)
    targets = torch.from_numpy(rng.integers(0, 2, (batch, symbols, case["bits"]))).to(dtype)
    head = nn.Linear(3, 1, dtype=dtype)
    with torch.no_grad():
        head.weight.copy_(torch.from_numpy(rng.normal(size=(1, 3))).float())
        head.bias.fill_(0.5)
    training = Training(
        batch=batch,
        runs=case["runs"],
        discount=0.9,
        **{name: case[name] for name in ("reward", "baseline", "entropy", "normalise")},
    )
    episode = Episode(outputs, turn_logits, turns, torch.zeros(batch, time, dtype=torch.int64), queries)
    examples = Examples(torch.zeros(batch, 1, 1, dtype=dtype), asked, targets, counted, asked)
    terms = objective(
        episode, examples, head, training, every=every, reinforce=1.3, exploration=case["exploration"]
    )
    terms.loss.backward()
    gradients = [outputs.grad, turn_logits.grad]
    if case["baseline"] == "learned":
        gradients += [head.weight.grad, head.bias.grad]
    numbers = [float(terms.loss.detach()), terms.cross_entropy, terms.entropy, terms.wrong]
    return numbers, [gradient.double() for gradient in gradients]


@pytest.mark.skipif("not __import__('ham.ops.native').ops.native.available()")
@settings(max_examples=60, deadline=None)
@given(cases())
def test_native_objective_matches_the_definition(case):
    try:
        exact, exact_gradients = terms_and_gradients(case, "reference", torch.float64)
        plain, plain_gradients = terms_and_gradients(case, "reference", torch.float32)
        ours, our_gradients = terms_and_gradients(case, "native", torch.float32)
    finally:
        ham.set_backend("auto")
    for want, by_torch, got in zip(exact, plain, ours, strict=True):
        assert abs(got - want) <= 2 * abs(by_torch - want) + 1e-5 * (1 + abs(want))
    for want, by_torch, got in zip(exact_gradients, plain_gradients, our_gradients, strict=True):
        scale = 1 + want.abs().max()
        assert (got - want).abs().max() <= 2 * (by_torch - want).abs().max() + 3e-6 * scale
