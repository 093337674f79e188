"""The native engine against the reference in float64: every value and every gradient.

A tolerance is earned, not chosen: the engine's error may be at most twice what plain PyTorch
makes in float32 on the same problem. Workspaces start as NaN throughout.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import ham
from ham.core.errors import InputError
from ham.core.tree import depth_of
from ham.models.lstm_ham import LSTMHAM
from ham.models.memory import HAM, State, forced
from ham.models.raw_ham import RawHAM
from ham.ops import Episode, native
from ham.ops.episode import Entropy, Order, Penalties
from ham.ops.native import calls, library
from ham.ops.native.networks import named_parameters, tensors_of

pytestmark = pytest.mark.skipif(not native.available(), reason=native.why_not() or "available")

WIDTHS = st.sampled_from([1, 2, 3, 4, 7, 8, 20, 33])
FIELDS = ("outputs", "turn_logits", "turns", "leaves", "queries", "tree")


@dataclass
class Problem:
    """A model, a batch for it, and the gradients that come back to its results."""

    model: torch.nn.Module
    inputs: torch.Tensor
    lengths: torch.Tensor
    asked: torch.Tensor
    uniforms: torch.Tensor | None
    leaves: int

    def run(
        self, backend: str, dtype=torch.float32, *, seed=0, share=0.7, **options
    ) -> tuple[Episode, list[torch.Tensor]]:
        ham.set_backend(backend)
        model = copy.deepcopy(self.model).to(dtype)
        uniforms = None if self.uniforms is None else self.uniforms.to(dtype)
        episode = model(
            self.inputs.to(dtype), self.lengths, self.asked, leaves=self.leaves, uniforms=uniforms, **options
        )
        rng = torch.Generator().manual_seed(seed)
        loss = (episode.outputs * torch.randn(episode.outputs.shape, generator=rng)).sum()
        loss = loss + (episode.log_probs * torch.randn(episode.turns.shape, generator=rng)).sum()
        loss = loss + (episode.entropies * torch.randn(episode.turns.shape, generator=rng)).sum()
        for cost in (episode.pull, episode.exploration):
            loss = loss if cost is None else loss + share * cost
        loss.backward()
        gradients = [
            torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            for parameter in model.parameters()
        ]
        return episode, gradients


@st.composite
def problems(draw, decisions=("forced",), largest=6) -> Problem:
    torch.manual_seed(draw(st.integers(0, 10_000)))
    leaves = 2 ** draw(st.integers(0, largest))
    batch = draw(st.sampled_from([1, 2, 5, 15, 16, 17, 33, 40]))
    features, bits, size, hidden = (draw(WIDTHS) for _ in range(4))
    depth = draw(st.integers(1, 2))
    longest = draw(st.integers(1, 7))
    asked = torch.randint(0, longest + 1, (batch,))
    asked[draw(st.integers(0, batch - 1))] = longest
    lengths = torch.randint(0, leaves + 1, (batch,))
    lengths[0] = draw(st.sampled_from([0, leaves]))
    kind = draw(st.sampled_from(decisions))
    widths = dict(size=size, hidden=hidden, depth=depth, soft=kind == "soft")
    if draw(st.booleans()):
        every = draw(st.integers(1, 3))
        model = LSTMHAM(features, bits, cells=draw(WIDTHS), every=every, **widths)
        slots = leaves
    else:
        every = 1
        model = RawHAM(features, bits, **widths)
        slots = longest
    for parameter in model.parameters():
        if parameter.dim() == 1:
            torch.nn.init.normal_(parameter, std=0.3)
    time = longest * every
    uniforms = None
    if kind == "forced":
        uniforms = forced(torch.randint(0, leaves, (batch, time)), leaves)
    elif kind == "sampled":
        uniforms = torch.rand(batch, time, depth_of(leaves))
    return Problem(model, torch.randn(batch, slots, features), lengths, asked, uniforms, leaves)


EPSILON = 2**-24


def error(found: torch.Tensor, right: torch.Tensor) -> float:
    """The largest error, in units of the largest right value (of 1, if that is smaller)."""
    if not right.numel():
        return 0.0
    right = right.detach().double()
    return (found.detach().double() - right).abs().max().item() / max(1.0, right.abs().max().item())


def assert_as_good(found, plain, right, names):
    """All together at most twice plain float32's error; one alone may be a little less lucky."""
    errors = [error(*pair) for pair in zip(found, right, strict=True)]
    allowed = [error(*pair) for pair in zip(plain, right, strict=True)]
    for name, one, plain_one in zip(names, errors, allowed, strict=True):
        assert one <= 2 * plain_one + 32 * EPSILON, name
    assert norm(errors) <= 2 * norm(allowed) + 2 * EPSILON


def norm(errors: list[float]) -> float:
    return (sum(one**2 for one in errors) / len(errors)) ** 0.5


@settings(max_examples=30)
@given(problems(), st.booleans())
def test_values_and_gradients_match_float64(problem, final_tree):
    assert_matches_float64(problem, final_tree)


@settings(max_examples=30)
@given(problems(decisions=("soft",)), st.booleans())
def test_soft_values_and_gradients_match_float64(problem, final_tree):
    assert_matches_float64(problem, final_tree)


def assert_matches_float64(problem, final_tree, share=0.7, **penalties):
    """`share`: how much of what penalties cost is in the loss."""
    options = {"final_tree": final_tree, "share": share, "penalties": Penalties(**penalties)}
    right, right_gradients = problem.run("reference", torch.float64, **options)
    plain, plain_gradients = problem.run("reference", **options)
    found, gradients = problem.run("native", **options)
    assert torch.equal(found.turns, right.turns)
    assert torch.equal(found.leaves, right.leaves)
    assert (found.tree is not None) == final_tree
    values = ["outputs", "turn_logits", "log_probs", "entropies", "queries"] + ["tree"] * final_tree
    for name in ("pull", "exploration"):
        assert (getattr(found, name) is None) == (getattr(right, name) is None)
        values += [name] * (getattr(found, name) is not None)
    of = [[getattr(episode, name) for name in values] for episode in (found, plain, right)]
    assert_as_good(*of, values)
    names = [name for name, _ in problem.model.named_parameters()]
    assert_as_good(gradients, plain_gradients, right_gradients, names)


@settings(max_examples=15)
@given(problems(decisions=("forced", "soft")), st.sampled_from([1e-3, 1.0]), st.booleans())
def test_a_pull_matches_float64(problem, pull, final_tree):
    assert_matches_float64(problem, final_tree, pull=pull)


@settings(max_examples=15)
@given(problems(decisions=("soft",)), st.sampled_from([1e-3, 0.1]), st.sampled_from([0.0, 0.1]))
def test_a_clipped_tree_matches_float64(problem, clip, pull):
    assert_matches_float64(problem, final_tree=False, tree_clip=clip, pull=pull)


@settings(max_examples=15)
@given(problems(decisions=("soft",)), st.sampled_from([1e-3, 0.1]), st.sampled_from(get_args(Entropy)))
def test_soft_exploration_matches_float64(problem, exploration, entropy):
    assert_matches_float64(problem, final_tree=False, exploration=exploration, entropy=entropy)


@settings(max_examples=15)
@given(problems(decisions=("sampled", "greedy")))
def test_decisions_match_the_reference(problem):
    """The same random numbers lead to the same leaves."""
    right, _ = problem.run("reference")
    found, _ = problem.run("native")
    assert torch.equal(found.turns, right.turns)
    assert torch.equal(found.leaves, right.leaves)
    torch.testing.assert_close(found.turn_logits, right.turn_logits, rtol=1e-4, atol=1e-4)


@settings(max_examples=10)
@given(problems(decisions=("sampled", "greedy", "forced", "soft")))
def test_without_gradients_the_results_are_the_same_bits(problem):
    with_tape, _ = problem.run("native", final_tree=True)
    ham.set_backend("native")
    batch = (problem.inputs, problem.lengths, problem.asked)
    with torch.no_grad():
        full = problem.model(*batch, leaves=problem.leaves, uniforms=problem.uniforms, final_tree=True)
        brief = problem.model(*batch, leaves=problem.leaves, uniforms=problem.uniforms, keep=False)
    for field in FIELDS:
        assert torch.equal(getattr(full, field), getattr(with_tape, field)), field
    assert torch.equal(brief.outputs, full.outputs)
    assert brief.turn_logits.shape[1] == brief.leaves.shape[1] == brief.queries.shape[1] == 0


@pytest.mark.parametrize("batch", [1, 2, 3, 4, 18, 35])
@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("width", [1, 5, 8, 20, 33])
@pytest.mark.parametrize("model_class", [LSTMHAM, RawHAM])
def test_a_few_examples_alone_are_the_same_bits_as_in_a_chunk(model_class, width, depth, batch):
    """Without gradients a chunk of few lanes runs them one by one, features in the vectors."""
    torch.manual_seed(width)
    model = model_class(width, 3, size=width, hidden=width + 2, depth=depth)
    time, leaves = 6, 16
    inputs = torch.randn(batch, leaves if model_class is LSTMHAM else time, width)
    lengths, asked = torch.randint(0, leaves + 1, (batch,)), torch.randint(0, time + 1, (batch,))
    asked[-1] = time
    for uniforms in (None, torch.rand(batch, time, depth_of(leaves))):
        problem = Problem(model, inputs, lengths, asked, uniforms, leaves)
        in_chunk, _ = problem.run("native", final_tree=True)
        with torch.no_grad():
            alone = model(inputs, lengths, asked, leaves=leaves, uniforms=uniforms, final_tree=True)
            brief = model(inputs, lengths, asked, leaves=leaves, uniforms=uniforms, keep=False)
        for field in FIELDS:
            assert torch.equal(getattr(alone, field), getattr(in_chunk, field)), field
        assert torch.equal(brief.outputs, alone.outputs)


def big_problem(model_class=LSTMHAM, batch=70, leaves=32, soft=False) -> Problem:
    torch.manual_seed(3)
    model = model_class(10, 11, soft=soft)
    asked = torch.randint(0, leaves + 2, (batch,))
    asked[-1] = leaves + 1
    inputs = torch.randn(batch, leaves if model_class is LSTMHAM else leaves + 1, 10)
    uniforms = torch.rand(batch, leaves + 1, depth_of(leaves))
    return Problem(model, inputs, torch.randint(0, leaves + 1, (batch,)), asked, uniforms, leaves)


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("model_class", [LSTMHAM, RawHAM])
def test_the_number_of_threads_changes_no_bit(model_class, soft):
    problem = big_problem(model_class, soft=soft)
    before = torch.get_num_threads()
    runs = []
    try:
        for threads in (1, 2, 3, 16):
            torch.set_num_threads(threads)
            runs.append(problem.run("native", final_tree=True))
    finally:
        torch.set_num_threads(before)
    first, first_gradients = runs[0]
    for episode, gradients in runs[1:]:
        for field in FIELDS:
            assert torch.equal(getattr(episode, field), getattr(first, field)), field
        for a, b in zip(gradients, first_gradients, strict=True):
            assert torch.equal(a, b)


@pytest.mark.parametrize("soft", [False, True])
def test_an_example_does_not_depend_on_its_neighbours(soft):
    problem = big_problem(soft=soft)
    whole, _ = problem.run("native", final_tree=True)
    order = torch.randperm(70)
    shuffled = Problem(
        problem.model,
        problem.inputs[order],
        problem.lengths[order],
        problem.asked[order],
        problem.uniforms[order],
        problem.leaves,
    )
    again, _ = shuffled.run("native", final_tree=True)
    for field in FIELDS:
        assert torch.equal(getattr(again, field), getattr(whole, field)[order]), field


@pytest.mark.parametrize("soft", [False, True])
def test_two_episodes_alive_at_once(soft):
    problem = big_problem(soft=soft)
    expected = problem.run("native")[1]
    ham.set_backend("native")
    losses = []
    for _ in range(2):
        model = copy.deepcopy(problem.model)
        episode = model(
            problem.inputs, problem.lengths, problem.asked, leaves=problem.leaves, uniforms=problem.uniforms
        )
        rng = torch.Generator().manual_seed(0)
        loss = (episode.outputs * torch.randn(episode.outputs.shape, generator=rng)).sum()
        loss = loss + (episode.log_probs * torch.randn(episode.turns.shape, generator=rng)).sum()
        loss = loss + (episode.entropies * torch.randn(episode.turns.shape, generator=rng)).sum()
        losses.append((loss, model))
    for loss, model in losses:
        loss.backward(retain_graph=True)
        first = [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]
        model.zero_grad()
        loss.backward()
        second = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
        for a, b in zip(first, second, strict=True):
            assert torch.equal(a, b)
        found = [p.grad if p.grad is not None else torch.zeros_like(p) for p in model.parameters()]
        for a, b in zip(found, expected, strict=True):
            assert torch.equal(a, b)
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        losses[0][0].backward()


def test_parameters_changed_before_backward_are_noticed():
    problem = big_problem(batch=3, leaves=4)
    ham.set_backend("native")
    episode = problem.model(
        problem.inputs, problem.lengths, problem.asked, leaves=problem.leaves, uniforms=problem.uniforms
    )
    with torch.no_grad():
        problem.model.output.weight.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        episode.outputs.sum().backward()


@pytest.mark.parametrize("soft", [False, True])
def test_nan_in_a_parameter_comes_out_where_the_reference_has_it(soft):
    problem = big_problem(batch=3, leaves=4, soft=soft)
    problem.asked[:] = 5
    for name in ("memory.join.0.weight", "memory.write.gate.0.bias", "controller.weight_hh"):
        model = copy.deepcopy(problem.model)
        with torch.no_grad():
            dict(model.named_parameters())[name].fill_(torch.nan)
            episodes = []
            for backend in ("reference", "native"):
                ham.set_backend(backend)
                episodes.append(model(problem.inputs, problem.lengths, problem.asked, leaves=4))
        right, found = episodes
        for field in ("outputs", "turn_logits", "queries"):
            assert torch.equal(getattr(found, field).isnan(), getattr(right, field).isnan()), (name, field)
        assert (right.queries if soft else right.turn_logits).isnan().any()


@pytest.mark.parametrize("model_class", [LSTMHAM, RawHAM])
@pytest.mark.parametrize("leaves", [32, 64, 128])
def test_soft_attention_to_more_leaves_than_a_block_holds(model_class, leaves):
    torch.manual_seed(leaves)
    model = model_class(3, 2, size=4, hidden=5, soft=True)
    inputs = torch.randn(18, leaves, 3)
    lengths, asked = torch.randint(0, leaves + 1, (18,)), torch.randint(0, 4, (18,))
    asked[3] = 4
    assert_matches_float64(Problem(model, inputs, lengths, asked, None, leaves), final_tree=True)


def test_soft_attention_that_is_evaluated_keeps_no_tape():
    """What a call asks for without gradients does not grow with the timesteps."""
    ham.set_backend("native")
    asked_for = []

    def counted(floats):
        asked_for.append(floats)
        return library.buffer(floats)

    model = LSTMHAM(3, 2, size=4, hidden=5, soft=True)
    with pytest.MonkeyPatch.context() as patch, torch.no_grad():
        patch.setattr(calls, "buffer", counted)
        for symbols in (1, 50):
            model(
                torch.rand(5, 16, 3), torch.full((5,), 16), torch.full((5,), symbols), leaves=16, keep=False
            )
    scratch = [floats for floats in asked_for if floats]
    assert len(scratch) == 2
    assert scratch[0] == scratch[1]


@settings(max_examples=15)
@given(st.data())
def test_single_accesses_match_float64(data):
    """A controller of one's own: a chain of attend and update, some examples idle, some reads extra."""
    torch.manual_seed(data.draw(st.integers(0, 10_000)))
    leaves, batch = 2 ** data.draw(st.integers(0, 6)), data.draw(st.sampled_from([1, 3, 8, 9, 16, 17, 40]))
    features, query, size, hidden = (data.draw(WIDTHS) for _ in range(4))
    memory = HAM(features, query, size, hidden=hidden, depth=data.draw(st.integers(1, 2)))
    x, queries = torch.randn(batch, leaves, features), torch.randn(4, batch, query)
    ways, idle = torch.randint(0, leaves, (4, batch)), torch.rand(4, batch) < 0.3
    final = torch.randn(batch, 2 * leaves, size)

    def run(backend, dtype):
        ham.set_backend(backend)
        module = copy.deepcopy(memory).to(dtype)
        asked = queries.detach().to(dtype).requires_grad_()
        rng = torch.Generator().manual_seed(1)
        state = module.init(x.to(dtype))
        loss = 0
        values = []
        for step in range(4):
            read = module.attend(state, asked[step], leaf=ways[step])
            values += [read.value, read.turn_logits]
            loss = loss + (read.value * torch.randn(read.value.shape, generator=rng)).sum()
            loss = loss + (read.turn_logits * torch.randn(read.turn_logits.shape, generator=rng)).sum()
            if step == 1:
                again = module.attend(state, read.value.new_ones(batch, query), leaf=ways[3])
                loss = loss + again.value.sum()
                continue
            active = None if step == 0 else ~idle[step]
            state = module.update(state, read, asked[step] * 0.5, active=active)
        loss = loss + (state.tree * final).sum()
        loss.backward()
        gradients = [p.grad if p.grad is not None else torch.zeros_like(p) for p in module.parameters()]
        return [*values, state.tree.detach(), asked.grad, *gradients]

    found, plain = run("native", torch.float32), run("reference", torch.float32)
    right = run("reference", torch.float64)
    assert_as_good(found, plain, right, range(len(right)))


@pytest.mark.parametrize(
    "settings", [{}, {"depth": 1}, {"join": "normalised"}, {"join": "highway", "grid": 4}]
)
@pytest.mark.parametrize("few", [1, 5, 8])
def test_accesses_of_a_few_examples_are_the_same_bits_as_among_many(settings, few):
    """Up to eight examples run in half as many lanes."""
    ham.set_backend("native")
    torch.manual_seed(few)
    memory = HAM(3, 5, 7, hidden=9, **settings)
    many, leaves = 12, 16
    tree = memory.empty(many, leaves).tree.detach() + torch.rand(many, 2 * leaves, 7)
    queries, ways = torch.randn(3, many, 5), torch.rand(3, many, 4)

    def run(batch):
        asked = queries[:, :batch].clone().requires_grad_()
        state, loss, found = State(tree[:batch].clone()), 0, []
        for step in range(3):
            read = memory.attend(state, asked[step], uniforms=ways[step, :batch].clone())
            state = memory.update(state, read, asked[step] * 0.5, active=asked[step, :, 0] > -1)
            found += [read.leaf, read.turns, read.value, read.turn_logits, read.log_probs]
            loss = loss + (read.log_probs[:few].sum() + read.value[:few].square().sum())
        loss = loss + state.tree[:few].square().sum()
        used = [*memory.search.parameters(), *memory.write.parameters(), *memory.join.parameters()]
        of_asked, *gradients = torch.autograd.grad(loss, [asked, *used])
        return [*(of[:few] for of in (*found, state.tree)), of_asked[:, :few], *gradients]

    for alone, among_many in zip(run(few), run(many), strict=True):
        assert torch.equal(alone, among_many)


def test_an_access_touches_one_path_only():
    ham.set_backend("native")
    memory = HAM(3, 5, 7)
    with torch.no_grad():
        state = memory.init(torch.randn(20, 16, 3))
        before = state.tree.clone()
        read = memory.attend(state, torch.randn(20, 5))
        after = memory.update(state, read, torch.randn(20, 5)).tree
    path = {(row, int(read.leaf[row] + 16) >> up) for row in range(20) for up in range(5)}
    changed = {tuple(index) for index in (before != after).any(-1).nonzero().tolist()}
    assert changed <= path
    assert {(row, int(read.leaf[row]) + 16) for row in range(20)} <= changed


def test_a_large_memory_needs_no_tape():
    """2^16 leaves: the indices, and that time and memory do not explode."""
    ham.set_backend("native")
    model = LSTMHAM(4, 3, cells=8, size=8, hidden=8).eval()
    leaves = 2**16
    with torch.no_grad():
        episode = model(
            torch.rand(2, leaves, 4), torch.tensor([leaves, 5]), torch.tensor([50, 3]), leaves=leaves
        )
    assert episode.outputs.shape == (2, 50, 3)
    assert int(episode.leaves.max()) < leaves
    assert torch.isfinite(episode.outputs).all()


def without(parameters: dict, name: str) -> dict:
    return {other: tensor for other, tensor in parameters.items() if other != name}


class TestRefusals:
    """Nothing unchecked reaches the engine."""

    def call(self, **changes):
        model = LSTMHAM(3, 2, cells=4, size=5, hidden=6)
        arguments = dict(
            parameters=named_parameters(model.networks()),
            inputs=torch.zeros(2, 4, 3),
            lengths=torch.tensor([4, 1]),
            durations=torch.tensor([3, 2]),
            uniforms=torch.rand(2, 3, 2),
            leaves=4,
            timesteps=3,
            every=1,
            soft=False,
            penalties=Penalties(),
        )
        for name, change in changes.items():
            arguments[name] = change(arguments[name])
        order = {name: arguments.pop(name) for name in Order._fields if name in arguments}
        return native.episode(arguments.pop("parameters"), Order(**order), **arguments)

    def test_what_is_right_passes(self):
        assert self.call().outputs.shape == (2, 3, 2)
        soft = self.call(soft=lambda _: True, uniforms=lambda _: None)
        assert soft.outputs.shape == (2, 3, 2)
        assert soft.turn_logits.shape == (2, 3, 0)

    @pytest.mark.parametrize(
        ("name", "change", "message"),
        [
            ("leaves", lambda _: 3, "leaves must be a power of two, got 3"),
            ("leaves", lambda _: 2, "4 items do not fit into a memory of 2 leaves"),
            ("inputs", lambda x: x[0], r"inputs must be \[batch, rows, bits\]"),
            ("inputs", lambda x: torch.zeros(2, 4, 9), r"inputs must have shape \(2, 4, 3\)"),
            ("inputs", lambda x: x[:0], "at least one example"),
            ("inputs", lambda x: x.fill_(torch.nan), "inputs must be finite, got nan at flat index 0"),
            ("lengths", lambda x: x + 1, "lengths must be between 0 and 4, got 5"),
            ("lengths", lambda x: x - 2, "lengths must be between 0 and 4, got -1"),
            ("lengths", lambda x: x[:1], r"lengths must have shape \(2,\)"),
            ("durations", lambda x: x + 1, "durations must be between 0 and 3, got 4"),
            ("durations", lambda x: -x, "durations must be between 0 and 3, got -3"),
            ("uniforms", lambda x: x[..., :1], r"uniforms must have shape \(2, 3, 2\)"),
            ("uniforms", lambda x: x * torch.inf, "uniforms must be finite"),
            ("every", lambda x: 0, "every must be at least 1"),
            ("soft", lambda x: True, "soft attention decides nothing: uniforms must be None"),
            ("penalties", lambda x: Penalties(tree_clip=1.0), "tree_clip is for soft attention"),
            ("penalties", lambda x: Penalties(exploration=1.0), "exploration is for soft attention"),
            ("penalties", lambda x: Penalties(pull=-1.0), "pull must be finite and not negative, got -1.0"),
            (
                "parameters",
                lambda x: without(x, "output.bias"),
                "parameter output.bias, which is missing",
            ),
            ("parameters", lambda x: without(x, "output.weight"), "there must be a parameter output.weight"),
            ("parameters", lambda x: x | {"more": x["output.bias"]}, "LSTM.HAM has no parameter more"),
            (
                "parameters",
                lambda x: x | {"embed.0.weight": x["embed.0.bias"]},
                "embed.0.weight must be a matrix",
            ),
            (
                "parameters",
                lambda x: x | {"search.0.weight": torch.zeros(6, 7)},
                "search.0.weight must have shape",
            ),
            (
                "parameters",
                lambda x: x | {"embed.0.weight": torch.zeros(3, 6).T},
                "embed.0.weight must be contiguous",
            ),
        ],
    )
    def test_values(self, name, change, message):
        with pytest.raises(InputError, match=message):
            self.call(**{name: change})

    @pytest.mark.parametrize(
        ("name", "change", "message"),
        [
            ("inputs", lambda x: x.double(), "inputs must be torch.float32, got torch.float64"),
            ("lengths", lambda x: x.int(), "lengths must be torch.int64, got torch.int32"),
            ("durations", lambda x: x.float(), "durations must be torch.int64"),
            ("uniforms", lambda x: x.double(), "uniforms must be torch.float32"),
            (
                "parameters",
                lambda x: x | {"embed.0.bias": torch.zeros(6).double()},
                "embed.0.bias must be torch.float32",
            ),
        ],
    )
    def test_types(self, name, change, message):
        with pytest.raises(TypeError, match=message):
            self.call(**{name: change})

    def test_more_soft_steps_than_a_tape_can_count(self):
        long = dict(timesteps=lambda _: 1 << 31, every=lambda _: 1 << 31)
        with pytest.raises(
            InputError, match="leaves times timesteps must be at most 2,147,483,648, got 4 and"
        ):
            self.call(soft=lambda _: True, uniforms=lambda _: None, **long)

    def test_single_accesses(self):
        memory = HAM(3, 4, 5)
        tree, query = torch.zeros(2, 8, 5), torch.zeros(2, 4)
        leaf = torch.tensor([0, 4])
        search, networks = tensors_of(memory.search), tensors_of(memory.write, memory.join)
        with pytest.raises(InputError, match="leaf must be between 0 and 3, got 4"):
            native.update(tree, leaf, query, None, networks)
        native.update(tree, leaf, query, torch.tensor([True, False]), networks)
        with pytest.raises(InputError, match=r"weights must have shape \[201\], got \[221\]"):
            native.attend(tree, torch.zeros(2, 3), torch.rand(2, 2), search)
        with pytest.raises(InputError, match="tree must be contiguous"):
            native.attend(torch.empty_strided((2, 8, 5), (1, 2, 16)).zero_(), query, torch.rand(2, 2), search)
        with pytest.raises(InputError, match="uniforms must be finite"):
            native.attend(tree, query, torch.full((2, 2), torch.nan), search)
