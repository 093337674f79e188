"""The baselines in the native engine against plain PyTorch in float64: every value and every gradient.

The tolerance is earned as in `test_native`; workspaces start as NaN throughout.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_native import WIDTHS, assert_as_good

import ham
from ham.core.errors import InputError
from ham.models import AttentiveDecoder, EncoderDecoder
from ham.ops import native
from ham.ops.native.networks import named_parameters, sizes_of_model, starts_of
from ham.ops.native.training import SequenceGradient, Vectors
from ham.tasks import Bits
from ham.train.flat import FlatParameters
from ham.train.gradient import Gradient
from ham.train.objective import Examples
from settings import run_with

pytestmark = pytest.mark.skipif(not native.available(), reason=native.why_not() or "available")

KINDS = [EncoderDecoder, AttentiveDecoder]


@dataclass
class Problem:
    """A baseline, and a batch for it; without targets it is fed its own symbols."""

    model: torch.nn.Module
    inputs: torch.Tensor
    lengths: torch.Tensor
    asked: torch.Tensor
    targets: torch.Tensor | None

    def outputs(self, model: torch.nn.Module, dtype=torch.float32) -> torch.Tensor:
        targets = None if self.targets is None else self.targets.to(dtype)
        slots = self.inputs.shape[1]
        return model(self.inputs.to(dtype), self.lengths, self.asked, leaves=slots, targets=targets).outputs

    def run(self, backend: str, dtype=torch.float32) -> tuple[torch.Tensor, list[torch.Tensor]]:
        ham.set_backend(backend)
        model = copy.deepcopy(self.model).to(dtype)
        outputs = self.outputs(model, dtype)
        pull = torch.randn(outputs.shape, generator=torch.Generator().manual_seed(0))
        (outputs * pull).sum().backward()
        return outputs.detach(), [parameter.grad for parameter in model.parameters()]


def problem_of(
    kind=EncoderDecoder, *, online=False, batch=70, slots=40, longest=37, features=5, bits=3, cells=6
) -> Problem:
    """The longest example and the shortest, with others in between; more symbols than rows, or fewer."""
    model = kind(features, bits, cells=cells, online=online)
    for parameter in model.parameters():
        if parameter.dim() == 1:
            torch.nn.init.normal_(parameter, std=0.3)
    asked = torch.randint(0, longest + 1, (batch,))
    asked[torch.randint(0, batch, ())] = longest
    slots = longest if online else slots
    lengths = torch.randint(1, slots + 1, (batch,))
    lengths[0] = 1
    targets = (torch.rand(batch, longest, bits) < 0.5).float()
    return Problem(model, torch.randn(batch, slots, features), lengths, asked, targets)


@st.composite
def problems(draw, kinds=tuple(KINDS), online=(False, True)) -> Problem:
    torch.manual_seed(draw(st.integers(0, 10_000)))
    return problem_of(
        draw(st.sampled_from(kinds)),
        online=draw(st.sampled_from(online)),
        batch=draw(st.sampled_from([1, 2, 15, 16, 17, 33])),
        slots=draw(st.sampled_from([1, 2, 7, 33])),
        longest=draw(st.sampled_from([1, 3, 8, 34])),
        features=draw(WIDTHS),
        bits=draw(WIDTHS),
        cells=draw(WIDTHS),
    )


@settings(max_examples=60)
@given(problems())
def test_values_and_gradients_match_float64(problem):
    right = problem.run("reference", torch.float64)
    plain, found = problem.run("reference"), problem.run("native")
    names = ["outputs", *(name for name, _ in problem.model.named_parameters())]
    assert_as_good(*([outputs, *gradients] for outputs, gradients in (found, plain, right)), names)


@settings(max_examples=15)
@given(problems(online=(False,)))
def test_fed_its_own_symbols_it_is_as_taught_by_them(problem):
    """The same bits, gradients too: a symbol fed back is data."""
    for parameter in problem.model.parameters():
        parameter.data.mul_(3)
    found, gradients = replace(problem, targets=None).run("native")
    taught, taught_gradients = replace(problem, targets=(found > 0).float()).run("native")
    assert torch.equal(found, taught)
    assert all(map(torch.equal, gradients, taught_gradients))


@settings(max_examples=15)
@given(problems(), st.booleans())
def test_without_gradients_the_results_are_the_same_bits(problem, taught):
    problem = problem if taught else replace(problem, targets=None)
    with_tape, _ = problem.run("native")
    with torch.no_grad():
        assert torch.equal(problem.outputs(problem.model), with_tape)


@pytest.mark.parametrize("online", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_the_number_of_threads_changes_no_bit(kind, online):
    problem = problem_of(kind, online=online)
    before = torch.get_num_threads()
    runs = []
    try:
        for threads in (1, 2, 3, 16):
            torch.set_num_threads(threads)
            runs.append(problem.run("native"))
    finally:
        torch.set_num_threads(before)
    # Online attention is plain PyTorch's, whose sums may depend on threads.
    if online and kind is AttentiveDecoder:
        return
    for outputs, gradients in runs[1:]:
        assert torch.equal(outputs, runs[0][0])
        assert all(map(torch.equal, gradients, runs[0][1]))


@pytest.mark.parametrize("kind", KINDS)
def test_an_example_does_not_depend_on_its_neighbours(kind):
    problem = problem_of(kind)
    problem = replace(problem, lengths=torch.where(problem.asked > 0, problem.lengths, 40))
    whole, _ = problem.run("native")
    order = torch.randperm(70)
    shuffled = Problem(
        problem.model,
        problem.inputs[order],
        problem.lengths[order],
        problem.asked[order],
        problem.targets[order],
    )
    again, _ = shuffled.run("native")
    assert torch.equal(again, whole[order])


@pytest.mark.parametrize("kind", KINDS)
def test_two_runs_alive_at_once(kind):
    problem = problem_of(kind, batch=20)
    _, expected = problem.run("native")
    models = [copy.deepcopy(problem.model) for _ in range(2)]
    runs = [problem.outputs(model) for model in models]
    pull = torch.randn(runs[0].shape, generator=torch.Generator().manual_seed(0))
    for outputs, model in zip(runs, models, strict=True):
        for _ in range(2):
            model.zero_grad()
            (outputs * pull).sum().backward(retain_graph=True)
            assert all(
                torch.equal(p.grad, right) for p, right in zip(model.parameters(), expected, strict=True)
            )


def test_parameters_changed_before_backward_are_noticed():
    problem = problem_of(AttentiveDecoder, batch=3)
    ham.set_backend("native")
    outputs = problem.outputs(problem.model)
    with torch.no_grad():
        problem.model.output.weight.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        outputs.sum().backward()


@pytest.mark.parametrize("kind", KINDS)
def test_nan_in_a_parameter_comes_out_where_the_reference_has_it(kind):
    problem = problem_of(kind, batch=3)
    problem.asked[:] = 37
    for name in ("encoder.weight_hh_l0", "decoder.bias_ih", "decoder.bias_ih_l0", "attention.score.weight"):
        model = copy.deepcopy(problem.model)
        if name not in dict(model.named_parameters()):
            continue
        with torch.no_grad():
            dict(model.named_parameters())[name].fill_(torch.nan)
            ham.set_backend("reference")
            right = problem.outputs(model)
            ham.set_backend("native")
            assert torch.equal(problem.outputs(model).isnan(), right.isnan())
        assert right.isnan().any()


def trained(kind, online=False, batch=37):
    """A model, its vectors, and a batch with symbols that do not count."""
    problem = problem_of(kind, batch=batch, online=online)
    counted = torch.arange(37) < problem.asked[:, None]
    counted &= torch.rand(counted.shape) < 0.8
    counted[torch.arange(batch), (problem.asked - 1).clamp(min=0)] = problem.asked > 0
    examples = Examples(
        problem.inputs,
        problem.lengths,
        problem.targets,
        counted,
        problem.asked,
        Bits(problem.targets.shape[-1]),
    )
    model = copy.deepcopy(problem.model)
    return model, FlatParameters(model), examples


def gradient_of(model, flat, examples, backend):
    ham.set_backend(backend)
    flat.gradient.fill_(torch.nan)
    uniforms = torch.zeros(*examples.counted.shape, 0, dtype=examples.inputs.dtype)
    strengths = {"reinforce": 1.0, "exploration": 1.0}
    cost = Gradient(model, flat, run_with()).of(examples, uniforms, leaves=32, **strengths)
    return cost, flat.gradient.clone()


@pytest.mark.parametrize("online", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_of_training_is_as_by_autograd(kind, online):
    model, flat, examples = trained(kind, online)
    right, right_gradient = gradient_of(model, flat, examples, "reference")
    found, gradient = gradient_of(model, flat, examples, "native")
    torch.testing.assert_close(gradient, right_gradient, rtol=1e-4, atol=1e-5)
    assert found.entropy == 0
    assert found.loss == found.parts["cross_entropy"]
    for field in ("loss", "wrong", "norm"):
        assert getattr(found, field) == pytest.approx(getattr(right, field), rel=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_of_training_is_the_same_bits_with_any_number_of_threads(kind):
    model, flat, examples = trained(kind, batch=70)
    before = torch.get_num_threads()
    runs = []
    try:
        for threads in (1, 2, 16):
            torch.set_num_threads(threads)
            runs.append(gradient_of(model, flat, examples, "native"))
    finally:
        torch.set_num_threads(before)
    for cost, gradient in runs[1:]:
        assert cost == runs[0][0]
        assert torch.equal(gradient, runs[0][1])


@pytest.mark.parametrize(
    ("name", "change", "error", "message"),
    [
        ("inputs", lambda x: x * torch.inf, InputError, "inputs must be finite"),
        ("inputs", lambda x: x[:, :, :-1], InputError, "inputs must have shape"),
        ("inputs", lambda x: x[0], InputError, "inputs must have 3 dimensions"),
        ("lengths", lambda x: x + 40, InputError, "lengths must be between 1 and 40"),
        ("lengths", lambda x: x * 0, InputError, "lengths must be between 1 and 40, got 0"),
        ("asked", lambda x: x + 37, InputError, "asked must be between 0 and 37"),
        ("asked", lambda x: x.int(), TypeError, "asked must be torch.int64"),
        ("targets", lambda x: x[:2], InputError, "targets must have shape"),
        ("targets", lambda x: x / 0, InputError, "targets must be finite"),
        ("targets", lambda x: x.transpose(1, 2).contiguous().transpose(1, 2), InputError, "contiguous"),
        ("counted", lambda x: x.float(), TypeError, "counted must be torch.bool"),
    ],
)
def test_nothing_unchecked_reaches_the_engine(name, change, error, message):
    model, flat, examples = trained(AttentiveDecoder)
    given = {part: getattr(examples, part) for part in ("inputs", "lengths", "asked", "targets", "counted")}
    given[name] = change(given[name])
    vectors = Vectors(flat.weights, flat.gradient, starts_of(model))
    engine = SequenceGradient(vectors, sizes_of_model(model))
    with pytest.raises(error, match=message):
        engine.of(**given)


def reading(**changes):
    lstm = torch.nn.LSTM(3, 4, bidirectional=True)
    given = {
        "parameters": dict(lstm.named_parameters()),
        "rows": torch.randn(5, 6, 3),
        "lengths": torch.tensor([0, 1, 6, 2, 3]),
    }
    return native.read(**(given | changes))


def decoding(**changes):
    model = AttentiveDecoder(3, 2, cells=4)
    given = {
        "parameters": named_parameters(model.decoding()),
        "state": torch.randn(5, 2, 4),
        "cell": None,
        "asked": torch.tensor([0, 1, 6, 2, 3]),
        "targets": torch.ones(5, 6, 2),
        "symbols": 6,
        "memory": torch.randn(5, 3, 8),
        "lengths": torch.tensor([1, 2, 3, 1, 3]),
    }
    return native.decode(**(given | changes))


WITHOUT_ATTENTION = named_parameters(EncoderDecoder(3, 2, cells=4).decoding())


def test_an_example_without_rows_ends_where_it_starts():
    states, state, cell = reading()
    assert states.shape == (5, 6, 8)
    assert not states[0].any()
    assert not state[0].any()
    assert not cell[0].any()
    assert states[1, 0].any()
    assert not states[1, 1:].any()


@pytest.mark.parametrize(
    ("call", "changes", "message"),
    [
        (reading, {"parameters": {}}, "there must be a parameter weight_hh_l0"),
        (reading, {"rows": torch.ones(5, 6, 2)}, r"weight_ih_l0 must have shape \(16, 2\)"),
        (reading, {"rows": torch.ones(5, 3)}, r"rows must be \[batch, time, bits\]"),
        (reading, {"rows": torch.ones(0, 6, 3)}, "at least one example"),
        (reading, {"rows": torch.full((5, 6, 3), torch.inf)}, "rows must be finite, got inf"),
        (reading, {"rows": torch.ones(5, 6, 3, requires_grad=True)}, "rows get no gradient"),
        (reading, {"lengths": torch.tensor([0, 1, 7, 2, 3])}, "lengths must be between 0 and 6, got 7"),
        (reading, {"lengths": torch.ones(4, dtype=torch.int64)}, r"lengths must have shape \(5,\)"),
        (decoding, {"parameters": {}}, "there must be a parameter output.weight"),
        (decoding, {"parameters": WITHOUT_ATTENTION}, "there must be a parameter attention.score.weight"),
        (
            decoding,
            {"memory": None, "lengths": None, "cell": torch.ones(5, 2, 4)},
            "no parameter attention.of_query",
        ),
        (decoding, {"lengths": None}, "a memory comes with lengths, and without a cell"),
        (decoding, {"cell": torch.ones(5, 2, 4)}, "a memory comes with lengths, and without a cell"),
        (decoding, {"lengths": torch.tensor([0, 2, 3, 1, 3])}, "lengths must be between 1 and 3, got 0"),
        (decoding, {"asked": torch.tensor([0, 1, 7, 2, 3])}, "asked must be between 0 and 6, got 7"),
        (decoding, {"symbols": 5}, r"targets must have shape \(5, 5, 2\)"),
        (decoding, {"symbols": 0}, "symbols must be between 1 and"),
        (decoding, {"targets": torch.ones(5, 5, 2)}, r"targets must have shape \(5, 6, 2\)"),
        (decoding, {"state": torch.ones(5, 2, 3)}, r"state must have shape \(5, 2, 4\)"),
        (decoding, {"state": torch.ones(5, 4)}, r"state must be \[batch, directions, cells\]"),
        (decoding, {"memory": torch.ones(5, 3, 7)}, r"attention.of_state.weight must have shape \(4, 7\)"),
        (decoding, {"targets": torch.full((5, 6, 2), torch.nan)}, "targets must be finite, got nan"),
    ],
)
def test_bad_arguments_are_refused(call, changes, message):
    with pytest.raises(InputError, match=message):
        call(**changes)


@pytest.mark.parametrize(
    ("call", "changes"),
    [
        (reading, {"rows": torch.ones(5, 6, 3, dtype=torch.float64)}),
        (reading, {"lengths": torch.ones(5)}),
        (decoding, {"asked": torch.ones(5)}),
        (decoding, {"memory": torch.ones(5, 3, 8, dtype=torch.float64)}),
    ],
)
def test_other_types_are_refused(call, changes):
    with pytest.raises(TypeError, match="must be torch"):
        call(**changes)
