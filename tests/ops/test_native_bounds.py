"""Values that cannot grow, rows at given leaves and given first states: the engine against float64."""

from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_native import FIELDS, WIDTHS, Problem, assert_as_good, assert_matches_float64

import ham
from ham.core.errors import InputError
from ham.models import HAM, LSTMHAM, RawHAM
from ham.models.memory import forced
from ham.models.model import Beforehand, Start
from ham.ops import native

pytestmark = pytest.mark.skipif(not native.available(), reason=native.why_not() or "available")

BOUNDS = [
    {"top": 1.0},
    {"join": "normalised"},
    {"join": "normalised", "top": 1.5},
    {"join": "highway"},
    {"join": "highway", "top": 1.0},
]


@st.composite
def bounded_problems(
    draw, bounds, decisions=("forced",), largest=6, widths=WIDTHS, batches=(1, 5, 16, 17, 33)
):
    """Models with bounds; an LSTM's cells are bounded too, and start anywhere."""
    torch.manual_seed(draw(st.integers(0, 10_000)))
    leaves, batch = 2 ** draw(st.integers(0, largest)), draw(st.sampled_from(batches))
    features, bits, size, hidden = (draw(widths) for _ in range(4))
    soft = draw(st.sampled_from(decisions)) == "soft"
    options = dict(size=size, hidden=hidden, depth=draw(st.integers(1, 2)), soft=soft, **draw(bounds))
    longest = draw(st.integers(1, 7))
    asked = torch.randint(0, longest + 1, (batch,))
    asked[0] = longest
    rows = draw(st.integers(0, leaves))
    lengths = torch.randint(0, rows + 1, (batch,))
    given_to_model = {}
    if draw(st.booleans()):
        cells = draw(widths)
        model = LSTMHAM(
            features, bits, cells=cells, cell_bound=draw(st.sampled_from([0.0, 0.25, 2.0])), **options
        )
        cell = 4 * torch.rand(batch, cells) - 2
        given_to_model = {
            "places": torch.randperm(leaves)[:rows].sort().values,
            "start": Start(torch.rand(batch, cells) * torch.tanh(cell), cell),
        }
    else:
        model = RawHAM(features, bits, **options)
        rows = longest
        if not soft:
            kinds = draw(st.integers(0, 4))
            given_to_model["beforehand"] = Beforehand(
                torch.rand(kinds, 2, features),
                torch.randint(1, 3, (kinds,)),
                torch.randint(0, leaves + 1, (kinds,)).sort().values,
            )
    for parameter in model.parameters():
        if parameter.dim() == 1:
            torch.nn.init.normal_(parameter, std=0.5)
    uniforms = None if soft else forced(torch.randint(0, leaves, (batch, longest)), leaves)
    return PlacedProblem(
        model, torch.randn(batch, rows, features), lengths, asked, uniforms, leaves, given_to_model
    )


class PlacedProblem(Problem):
    """A problem with `places` and `start`, or with `beforehand`."""

    def __init__(self, *parts):
        *own, self.given = parts
        super().__init__(*own)

    def run(self, backend, dtype=torch.float32, **options):
        placed = dict(self.given)
        if "start" in placed:
            placed["start"] = Start(*(part.to(dtype) for part in placed["start"]))
        if "beforehand" in placed:
            rows, done, ends = placed["beforehand"]
            placed["beforehand"] = Beforehand(rows.to(dtype), done, ends)
        return super().run(backend, dtype, **placed, **options)


@settings(max_examples=40)
@given(bounded_problems(st.sampled_from(BOUNDS)), st.booleans())
def test_bounds_match_float64(problem, final_tree):
    assert_matches_float64(problem, final_tree)


@settings(max_examples=30)
@given(bounded_problems(st.sampled_from(BOUNDS), decisions=("soft",), largest=5), st.booleans())
def test_bounds_with_soft_attention_match_float64(problem, final_tree):
    assert_matches_float64(problem, final_tree)


ON_GRID = [
    {"grid": 4},
    {"grid": 2, "top": 1.0},
    {"grid": 4, "join": "normalised"},
    {"grid": 8, "join": "highway"},
]
FEW = st.sampled_from([1, 2, 3, 5])


@settings(max_examples=40)
@given(
    bounded_problems(
        st.sampled_from(ON_GRID), decisions=("forced", "soft"), largest=3, widths=FEW, batches=(1, 2, 17)
    ),
    st.booleans(),
)
def test_values_on_a_grid_match_float64(problem, final_tree):
    """Small ones: of many values, one would lie so near the middle that float32 rounds it the other way."""
    assert_matches_float64(problem, final_tree)


@settings(max_examples=10)
@given(bounded_problems(st.sampled_from(BOUNDS)), st.sampled_from([1e-3, 1.0]))
def test_a_pull_on_bounded_values_matches_float64(problem, pull):
    assert_matches_float64(problem, final_tree=False, share=1.0, pull=pull)


@pytest.mark.parametrize("batch", [1, 3, 18])
@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("bounds", BOUNDS + ON_GRID, ids=str)
@pytest.mark.parametrize("model_class", [LSTMHAM, RawHAM])
def test_a_few_examples_alone_are_the_same_bits_as_in_a_chunk(model_class, bounds, depth, batch):
    torch.manual_seed(batch)
    if model_class is LSTMHAM:
        bounds = {**bounds, "cell_bound": 0.5}
    model = model_class(3, 2, size=7, hidden=9, depth=depth, **bounds)
    leaves, cell = 16, torch.rand(batch, 20) - 0.5
    placed = {}
    if model_class is LSTMHAM:
        placed = {"places": torch.tensor([0, 3, 4, 9, 15]), "start": Start(cell / 2, cell)}
    asked = torch.full((batch,), 6)
    problem = PlacedProblem(
        model, torch.randn(batch, 5 if placed else 6, 3), torch.full((batch,), 5), asked, None, leaves, placed
    )
    in_chunk, _ = problem.run("native", final_tree=True)
    with torch.no_grad():
        alone = model(problem.inputs, problem.lengths, asked, leaves=leaves, final_tree=True, **placed)
    for field in FIELDS:
        assert torch.equal(getattr(alone, field), getattr(in_chunk, field)), field


@settings(max_examples=20)
@given(st.data())
def test_single_accesses_with_bounds_match_float64(data):
    torch.manual_seed(data.draw(st.integers(0, 10_000)))
    leaves, batch = 2 ** data.draw(st.integers(0, 5)), data.draw(st.sampled_from([1, 3, 17]))
    features, query, size, hidden = (data.draw(WIDTHS) for _ in range(4))
    depth, bounds = data.draw(st.integers(1, 2)), data.draw(st.sampled_from(BOUNDS))
    memory = HAM(features, query, size, hidden=hidden, depth=depth, **bounds)
    places = torch.randperm(leaves)[: leaves // 2 + 1].sort().values
    x, queries = torch.randn(batch, len(places), features), torch.randn(3, batch, query)
    ways = torch.randint(0, leaves, (3, batch))
    final = torch.randn(batch, 2 * leaves, size)

    def run(backend, dtype):
        ham.set_backend(backend)
        module = copy.deepcopy(memory).to(dtype)
        asked = queries.detach().to(dtype).requires_grad_()
        state = module.init(x.to(dtype), leaves=leaves, places=places)
        values = []
        for step in range(3):
            read = module.attend(state, asked[step], leaf=ways[step])
            values += [read.value, read.turn_logits]
            state = module.update(state, read, asked[step] * 0.5)
        loss = (state.tree * final).sum() + sum(value.sum() for value in values)
        loss.backward()
        gradients = [p.grad if p.grad is not None else torch.zeros_like(p) for p in module.parameters()]
        return [*values, state.tree.detach(), asked.grad, *gradients]

    found, plain = run("native", torch.float32), run("reference", torch.float32)
    assert_as_good(found, plain, run("reference", torch.float64), range(len(found)))


@pytest.mark.parametrize("soft", [False, True])
def test_rows_at_the_first_leaves_are_the_same_bits_as_without_places(soft):
    ham.set_backend("native")
    torch.manual_seed(0)
    model = LSTMHAM(3, 2, size=5, hidden=6, soft=soft)
    inputs, lengths, asked = torch.randn(20, 8, 3), torch.randint(0, 9, (20,)), torch.full((20,), 4)
    uniforms = None if soft else torch.rand(20, 4, 5)
    results = []
    for places in (None, torch.arange(8)):
        model.zero_grad()
        episode = model(inputs, lengths, asked, leaves=32, uniforms=uniforms, final_tree=True, places=places)
        episode.outputs.sum().backward()
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        results.append([*(getattr(episode, field) for field in FIELDS), *gradients])
    for a, b in zip(*results, strict=True):
        assert torch.equal(a, b)


def test_cells_stay_in_their_bound(engine):
    model = LSTMHAM(3, 2, cell_bound=0.1)
    _, cell = model.controller(torch.randn(50, 20), (torch.zeros(50, 20), torch.zeros(50, 20)))
    assert float(cell.detach().abs().max()) == pytest.approx(0.1)
    episode = model(torch.randn(50, 8, 3), torch.full((50,), 8), torch.full((50,), 5), leaves=8)
    assert episode.queries.abs().max() <= torch.tanh(torch.tensor(0.1))


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        ({"top": 0.5}, "top must be 0 .no ceiling. or at least 1"),
        ({"grid": 3}, "grid must be 0 .none. or a power of two, got 3"),
        ({"join": "mean"}, "no JOIN is named 'mean'; there are rectified, normalised, highway"),
        ({"cell_bound": -1.0}, "cell_bound must be finite and not negative, got -1.0"),
    ],
)
def test_bounds_that_make_no_sense_are_refused(unchecked, bounds, message):
    with pytest.raises(InputError, match=message):
        LSTMHAM(3, 2, **bounds)


@pytest.mark.parametrize(
    ("places", "message"),
    [
        ([0, 2, 1], "places must be different leaves.* in ascending order"),
        ([0, 1, 1], "places must be different leaves.* in ascending order"),
        ([0, 1, 8], "places must be"),
        ([-1, 1, 2], "places must be"),
        ([0, 1], r"places must have shape \(3,\), got \(2,\)"),
    ],
)
def test_places_that_are_none_are_refused(engine, unchecked, places, message):
    model = LSTMHAM(3, 2)
    with pytest.raises(InputError, match=message):
        model(
            torch.zeros(1, 3, 3), torch.tensor([3]), torch.tensor([1]), leaves=8, places=torch.tensor(places)
        )
