"""Native training against its definition in PyTorch: the objective, whole gradients, Adam."""

from __future__ import annotations

import copy
import ctypes
import os
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import ham
from ham import tasks
from ham.config import Architecture
from ham.core.errors import InputError
from ham.core.tree import leaf_of
from ham.models.memory import forced
from ham.ops import Episode, native
from ham.ops.episode import PARTS
from ham.ops.native import steps
from ham.ops.native import training as native_training
from ham.ops.native.episodes import ENTROPIES
from ham.ops.native.library import loaded, structures
from ham.ops.native.networks import sizes_of_model, starts_of
from ham.ops.native.structures import TERMS
from ham.tasks import Bits
from ham.train.adam import Adam
from ham.train.flat import FlatParameters
from ham.train.gradient import Gradient, options_of
from ham.train.objective import Examples, objective
from settings import run_with

pytestmark = pytest.mark.skipif(not native.available(), reason=native.why_not() or "available")


@pytest.fixture(autouse=True)
def the_engine_as_it_was():
    yield
    ham.set_backend("auto")


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
        "entropy": draw(st.sampled_from(["inverse", "negative", "positive"])),
        "normalise": draw(st.booleans()),
        "exploration": draw(st.sampled_from([0.0, 1e-3])),
        "rightward": draw(st.sampled_from([0.0, 0.7])),
        "right": draw(st.sampled_from([0.0, 0.9])),
    }


class Case:
    """Results of an episode, made up, and what the objective needs besides."""

    def __init__(self, case: dict):
        rng = np.random.default_rng(case["seed"])
        batch, symbols, self.every = case["batch"], case["symbols"], case["every"]
        time = symbols * self.every
        self.asked = torch.from_numpy(rng.integers(0, symbols, batch, endpoint=True))
        self.counted = torch.arange(symbols) < self.asked[:, None]
        self.counted &= torch.from_numpy(rng.random((batch, symbols)) < 0.8)

        def normal(*shape: int) -> torch.Tensor:
            return torch.from_numpy(rng.normal(size=shape) * case["scale"]).float()

        self.outputs = normal(batch, symbols, case["bits"])
        self.turn_logits = normal(batch, time, case["depth"])
        self.queries = normal(batch, time, 3)
        self.turns = torch.from_numpy(rng.random((batch, time, case["depth"])) < 0.5)
        self.targets = torch.from_numpy(rng.integers(0, 2, (batch, symbols, case["bits"]))).float()
        all_right = torch.from_numpy(rng.random((batch, 1, 1)) < case["right"])
        self.outputs = torch.where(all_right, self.outputs.abs() * (2 * self.targets - 1), self.outputs)
        self.head = torch.from_numpy(np.append(rng.normal(size=3), 0.5)).float()
        self.exploration, self.entropy = case["exploration"], case["entropy"]
        self.run = run_with(
            batch=batch,
            runs=case["runs"],
            discount=0.9,
            every=self.every,
            rightward=case["rightward"] if self.every > 1 else 0.0,
            **{name: case[name] for name in ("reward", "baseline", "normalise")},
        )

    def defined(self, dtype: torch.dtype):
        """Terms and gradients by autograd."""
        leaves = [self.outputs.to(dtype).requires_grad_(), self.turn_logits.to(dtype).requires_grad_()]
        head = nn.Linear(3, 1, dtype=dtype)
        with torch.no_grad():
            head.weight.copy_(self.head[None, :3])
            head.bias.copy_(self.head[3:])
        episode = Episode(*leaves, self.turns, leaf_of(self.turns), self.queries.to(dtype))
        inputs = torch.zeros(len(self.asked), 1, 1, dtype=dtype)
        examples = Examples(inputs, self.asked, self.targets.to(dtype), self.counted, self.asked, Bits(1))
        terms = objective(
            episode,
            examples,
            head,
            self.run,
            every=self.every,
            reinforce=1.3,
            exploration=self.exploration,
            entropy=self.entropy,
        )
        terms.loss.backward()
        gradients = [leaf.grad.double() for leaf in leaves]
        if self.run.objective.baseline == "learned":
            gradients.append(torch.cat([head.weight.grad[0], head.bias.grad]).double())
        parts = [float(terms.parts.get(part, torch.zeros(())).detach()) for part in PARTS]
        return [*parts, terms.entropy, terms.wrong], gradients

    def native(self):
        """The same by the engine; what it must not read is NaN."""
        call = structures().HamObjective()
        call.batch, call.symbols, call.bits = self.outputs.shape
        _, call.timesteps, call.levels = self.turns.shape
        call.query, call.every = self.queries.shape[-1], self.every
        native_training.Options(**options_of(self.run)).fill(call)
        call.reinforce, call.exploration = 1.3, self.exploration
        call.entropy = ENTROPIES.index(self.entropy)
        durations = self.asked * self.every
        ran = torch.arange(call.timesteps) < durations[:, None]
        gave = torch.arange(call.symbols) < self.asked[:, None]
        given = {
            "outputs": self.outputs.where(gave[..., None], torch.nan),
            "targets": self.targets,
            "counted": self.counted,
            "durations": durations,
            "turn_logits": self.turn_logits.where(ran[..., None], torch.nan),
            "turns": self.turns,
            "queries": self.queries.where(ran[..., None], torch.nan),
            "head": self.head,
            "d_outputs": torch.full_like(self.outputs, torch.nan),
            "d_turn_logits": torch.full_like(self.turn_logits, torch.nan),
            "d_head": torch.full_like(self.head, torch.nan),
            "terms": torch.full((len(TERMS),), torch.nan, dtype=torch.float64),
        }
        for name, tensor in given.items():
            setattr(call, name, tensor.data_ptr())
        scratch = torch.full((loaded().ham_objective_floats(ctypes.byref(call)),), torch.nan)
        call.scratch = scratch.data_ptr()
        loaded().ham_objective(ctypes.byref(call))
        gradients = [given["d_outputs"], given["d_turn_logits"]]
        if self.run.objective.baseline == "learned":
            gradients.append(given["d_head"])
        return given["terms"].tolist(), [gradient.double() for gradient in gradients]


@settings(max_examples=60)
@given(cases())
def test_the_objective_matches_its_definition(case):
    case = Case(case)
    exact, exact_gradients = case.defined(torch.float64)
    plain, plain_gradients = case.defined(torch.float32)
    ours, our_gradients = case.native()
    for want, by_torch, got in zip(exact, plain, ours, strict=True):
        assert abs(got - want) <= 2 * abs(by_torch - want) + 1e-5 * (1 + abs(want))
    for want, by_torch, got in zip(exact_gradients, plain_gradients, our_gradients, strict=True):
        scale = 1 + want.abs().max()
        assert (got - want).abs().max() <= 2 * (by_torch - want).abs().max() + 3e-6 * scale


def batch_of(task: str, leaves: int, batch: int, runs: int = 1, seed: int = 0):
    """A model, a batch for it and the uniforms that force its descents."""
    task = tasks.get(task)
    torch.manual_seed(seed)
    kind = "raw-ham" if task.online else "lstm+ham"
    model = Architecture(kind, cells=7, size=6, hidden=9, every=2).build(task)
    rng = np.random.default_rng(seed)
    inputs = batch // runs
    drawn = task.sample(rng, inputs, leaves, task.draw_lengths(rng, inputs, 1, leaves))
    examples = Examples.of(drawn.repeat(runs), task.outputs)
    time = examples.counted.shape[1] * model.every
    return model, examples, forced(torch.randint(0, leaves, (batch, time)), leaves)


def cost_and_gradient(model, examples, uniforms, training, backend, dtype=torch.float32, **told):
    ham.set_backend(backend)
    model = copy.deepcopy(model).to(dtype)
    flat = FlatParameters(model)
    if dtype != torch.float32:
        examples = replace(examples, inputs=examples.inputs.to(dtype), targets=examples.targets.to(dtype))
    # Whoever computes a gradient writes all of it.
    flat.gradient.fill_(1e9 if training.objective.baseline == "learned" else 0.0)
    leaves = 2 ** uniforms.shape[-1]
    given = dict(leaves=leaves, reinforce=1.3, exploration=1e-2)
    cost = Gradient(model, flat, training).of(examples, uniforms.to(dtype), **given, **told)
    return cost, flat.gradient.clone()


@pytest.mark.parametrize("task", ["reverse", "add", "stack"])
@pytest.mark.parametrize("baseline", ["learned", "leave-one-out", "none"])
@pytest.mark.parametrize(
    ("leaves", "batch", "pull"), [(4, 2, 0.0), (8, 18, 1.0), (16, 50, 0.0), (16, 50, 0.01)]
)
def test_a_whole_gradient_is_that_of_the_definition(task, baseline, leaves, batch, pull):
    runs = 2 if baseline == "leave-one-out" else 1
    training = run_with(batch=batch, runs=runs, baseline=baseline, pull=pull)
    require_the_definition((*batch_of(task, leaves, batch, runs), training))


def require_the_definition(problem, **told):
    right, right_gradient = cost_and_gradient(*problem, "reference", torch.float64, **told)
    plain, plain_gradient = cost_and_gradient(*problem, "reference", **told)
    found, gradient = cost_and_gradient(*problem, "native", **told)
    assert (right.parts["pull"] > 0) == (problem[-1].objective.pull > 0)
    of_all = [{**cost.parts, **vars(cost), "loss": cost.loss} for cost in (right, plain, found)]
    for name in ("loss", *PARTS, "entropy", "norm"):
        want, by_torch, got = (cost[name] for cost in of_all)
        assert abs(got - want) <= 2 * abs(by_torch - want) + 1e-5 * (1 + abs(want)), name
    assert found.wrong == right.wrong
    scale = right_gradient.abs().max()
    error, plain_error = ((g - right_gradient).abs().max() for g in (gradient, plain_gradient))
    assert error <= 2 * plain_error + 32 * 2**-24 * scale


@pytest.mark.parametrize(("runs", "batch"), [(1, 20), (2, 50), (3, 48), (4, 64), (8, 24), (20, 60)])
@pytest.mark.parametrize("leaves", [1, 8, 256])
def test_trees_of_one_run_or_several_have_the_gradient_of_the_definition(runs, batch, leaves):
    """Chunks of lanes hold whole inputs, several, or pieces of one; most of the tallest tree nobody comes by."""
    model, examples, _ = batch_of("sort", min(leaves, 8), batch, runs)
    time, slots = examples.counted.shape[1] * model.every, examples.inputs.shape[1]
    uniforms = forced(torch.randint(0, leaves, (batch, time)), leaves)
    places = torch.randperm(leaves)[:slots].sort().values
    baseline, pull = "leave-one-out" if runs > 1 else "learned", 0.01 if leaves > 1 else 0.0
    training = run_with(batch=batch, runs=runs, baseline=baseline, pull=pull)
    require_the_definition((model, examples, uniforms, training), places=places)


@pytest.mark.parametrize("form", ["highway", "normalised"])
def test_runs_share_trees_of_every_form_of_join(form):
    task = tasks.get("sort")
    torch.manual_seed(1)
    model = Architecture(hidden=40, join=form, cell_bound=2.0).build(task)
    _, examples, _ = batch_of("sort", 8, 24, 4)
    uniforms = forced(torch.randint(0, 32, (24, examples.counted.shape[1])), 32)
    places = torch.randperm(32)[: examples.inputs.shape[1]].sort().values
    training = run_with(batch=24, runs=4, baseline="leave-one-out")
    require_the_definition((model, examples, uniforms, training), places=places)


def test_what_is_said_to_be_runs_of_one_input_must_be():
    model, examples, uniforms = batch_of("reverse", 8, 4, runs=2)
    ham.set_backend("native")
    gradient = Gradient(model, FlatParameters(model), run_with(batch=4, runs=2))
    given = dict(leaves=8, reinforce=1.0, exploration=0.0)
    for name in ("inputs", "lengths", "asked"):
        changed = getattr(examples, name).clone()
        changed[1] = 1 - changed[1] if name == "inputs" else 0
        with pytest.raises(
            InputError, match=f"the 2 runs of an input must be the same, but their {name} differ"
        ):
            gradient.of(replace(examples, **{name: changed}), uniforms, **given)
    gradient = Gradient(model, FlatParameters(model), run_with(batch=3, runs=3))
    with pytest.raises(InputError, match="the batch must be a multiple of the runs of an input, got 4 and 3"):
        gradient.of(examples, uniforms, **given)


@pytest.mark.parametrize("runs", [1, 7])
def test_the_number_of_threads_changes_no_bit(runs):
    problem = (*batch_of("reverse", 16, 70, runs), run_with(batch=70, runs=runs))
    before = torch.get_num_threads()
    try:
        found = []
        for threads in (1, 2, 3, 16):
            torch.set_num_threads(threads)
            found.append(cost_and_gradient(*problem, "native"))
    finally:
        torch.set_num_threads(before)
    for cost, gradient in found[1:]:
        assert cost == found[0][0]
        assert torch.equal(gradient, found[0][1])


def test_one_gradient_serves_batches_of_all_sizes():
    """Its workspace is used again; what an earlier batch left there must not matter."""
    model, *_ = batch_of("reverse", 8, 4)
    training, flat = run_with(batch=4), FlatParameters(model)
    ham.set_backend("native")
    kept = Gradient(model, flat, training)
    for leaves, batch in [(8, 40), (2, 3), (16, 20), (8, 40)]:
        _, examples, uniforms = batch_of("reverse", leaves, batch, seed=leaves)
        given = dict(leaves=leaves, reinforce=1.0, exploration=1e-3)
        cost, gradient = kept.of(examples, uniforms, **given), flat.gradient.clone()
        assert Gradient(model, flat, training).of(examples, uniforms, **given) == cost
        assert torch.equal(flat.gradient, gradient)


def test_a_forked_process_computes_on(monkeypatch):
    """Threads do not survive a fork; the engine must not count on them."""
    # Filling a large tensor would use PyTorch's own threads, which do not survive one.
    native.fill_with_nan(False)
    problem = (*batch_of("reverse", 8, 40), run_with(batch=40))
    torch.set_num_threads(2)
    try:
        expected = cost_and_gradient(*problem, "native")
        if (child := os.fork()) == 0:
            cost, gradient = cost_and_gradient(*problem, "native")
            os._exit(0 if cost == expected[0] and torch.equal(gradient, expected[1]) else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        torch.set_num_threads(1)


@pytest.mark.parametrize(
    ("name", "change", "error", "message"),
    [
        ("inputs", lambda x: x * torch.nan, InputError, "inputs must be finite, got nan"),
        ("inputs", lambda x: x.double(), TypeError, "inputs must be torch.float32"),
        ("inputs", lambda x: x[..., :2], InputError, "inputs must have shape"),
        ("lengths", lambda x: x + 8, InputError, "lengths must be between 0 and 8"),
        ("lengths", lambda x: x.int(), TypeError, "lengths must be torch.int64"),
        ("asked", lambda x: x + 20, InputError, "asked must be between 0 and"),
        ("asked", lambda x: x - 20, InputError, "asked must be between 0 and"),
        ("targets", lambda x: x[:2], InputError, "targets must have shape"),
        ("targets", lambda x: x.transpose(1, 2).contiguous().transpose(1, 2), InputError, "contiguous"),
        ("counted", lambda x: x.float(), TypeError, "counted must be torch.bool"),
        ("uniforms", lambda x: x + torch.inf, InputError, "uniforms must be finite"),
        ("uniforms", lambda x: x[:, :-1], InputError, "uniforms must have shape"),
    ],
)
def test_nothing_unchecked_reaches_the_engine(name, change, error, message):
    model, examples, uniforms = batch_of("reverse", 8, 3)
    training, flat = run_with(batch=3), FlatParameters(model)
    names = ("inputs", "lengths", "asked", "targets", "counted")
    given = {part: getattr(examples, part) for part in names} | {"uniforms": uniforms}
    given[name] = change(given[name])
    engine = native_training.Gradient(
        native_training.Vectors(flat.weights, flat.gradient, starts_of(model)),
        sizes_of_model(model),
        model.every,
        native_training.Options(**options_of(training)),
    )
    with pytest.raises(error, match=message):
        engine.of(**given, leaves=8, reinforce=1.0, exploration=0.0, entropy="inverse")


def test_leave_one_out_needs_runs_that_divide_the_batch():
    model, examples, uniforms = batch_of("reverse", 8, 3)
    ham.set_backend("native")
    gradient = Gradient(model, FlatParameters(model), run_with(batch=4, runs=2, baseline="leave-one-out"))
    with pytest.raises(InputError, match="leave-one-out needs at least two runs that divide"):
        gradient.of(examples, uniforms, leaves=8, reinforce=1.0, exploration=0.0)


@pytest.mark.parametrize("size", [1, 7, 100, 8813])
def test_adam_is_its_definition(size):
    torch.manual_seed(0)
    start, gradients = torch.randn(size), [torch.randn(size) for _ in range(20)]
    found = {}
    for backend, dtype in (("native", torch.float32), ("reference", torch.float64)):
        ham.set_backend(backend)
        adam = Adam(start.to(dtype).clone())
        for gradient in gradients:
            adam.step(gradient.to(dtype), 0.01, scale=0.7)
        found[backend] = [adam.weights, adam.mean, adam.square]
    for ours, right in zip(found["native"], found["reference"], strict=True):
        torch.testing.assert_close(ours.double(), right, rtol=1e-5, atol=1e-6)


def test_adam_refuses_vectors_of_another_length():
    vectors = [torch.zeros(5), torch.zeros(4), torch.zeros(5), torch.zeros(5)]
    with pytest.raises(InputError, match="gradient must have shape"):
        steps.adam(*vectors, scale=1.0, rate=0.1, mean_decay=0.9, square_decay=0.999, epsilon=1e-8, steps=1)
