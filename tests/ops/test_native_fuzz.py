"""Every native op with arguments spoilt at random: an exception or a right result, never a crash.

Run under the address sanitizer too (`make sanitize`), where reading one float too far is a crash.
`HAM_FUZZ=10000 pytest tests/ops/test_native_fuzz.py` draws more cases.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import ham
from ham.core.errors import InputError
from ham.core.tree import depth_of
from ham.models import HAM, LSTMHAM, AttentiveDecoder, EncoderDecoder, RawHAM
from ham.models.memory import State, forced
from ham.models.recurrent import read_rows
from ham.ops import native, reference, table
from ham.ops.episode import Order, Penalties
from ham.ops.native import steps, training
from ham.ops.native.networks import named_parameters, sizes_of_model, starts_of
from hostile import cases

pytestmark = pytest.mark.skipif(not native.available(), reason=native.why_not() or "available")

REFUSALS = (InputError, TypeError, ValueError, RuntimeError, AttributeError, IndexError, MemoryError)
"""All that Python may raise; what must not happen is that the process dies or the result is wrong."""
NUMBERS = [0, -1, 3, 5, 1 << 33, 1 << 62, (1 << 63) - 1, 1 << 64, 2.5, None, "4"]


@pytest.fixture(autouse=True)
def nobody_else_checks_shapes(unchecked):
    pass


def strided(tensor: torch.Tensor) -> torch.Tensor:
    """The same values, not one after the other in memory."""
    return torch.stack([tensor, tensor], -1)[..., 0]


@st.composite
def spoilt(draw, value: Any) -> Any:
    """An argument changed in one way, not always to something wrong."""
    if isinstance(value, dict):
        name = draw(st.sampled_from(sorted(value)))
        how = draw(st.integers(0, 5))
        if how == 0:
            return {other: tensor for other, tensor in value.items() if other != name}
        if how == 1:
            return {**value, f"{name}.more": value[name]}
        return {**value, name: draw(spoilt(value[name]))}
    if not isinstance(value, torch.Tensor):
        return draw(st.sampled_from(NUMBERS))
    value = value.detach().clone()
    flat = value.view(-1)
    place = draw(st.integers(0, max(value.numel() - 1, 0)))
    bad = draw(st.sampled_from([torch.nan, torch.inf, -torch.inf, 3e38]))
    number = draw(st.sampled_from([-1, 1 << 31, -(1 << 63), (1 << 63) - 1, 2, 1000]))
    match draw(st.integers(0, 13)):
        case 0 | 1 if value.is_floating_point() and value.numel():
            flat[place] = bad
        case 0 | 1 if value.dtype == torch.int64 and value.numel():
            flat[place] = number
        case 2:
            return value.to(
                draw(st.sampled_from([torch.float64, torch.float16, torch.int32, torch.complex64]))
            )
        case 3:
            return value.to("meta")
        case 4:
            return strided(value)
        case 5 if value.dim():
            return value[0]
        case 6:
            return value[None]
        case 7 if value.dim():
            return value[:0]
        case 8 if value.dim():
            return torch.cat([value, value])
        case 9 if value.dim():
            return value[..., :-1]
        case 10 if value.dim():
            return value[..., :1].expand(value.shape)
        case 11:
            return draw(st.sampled_from([None, "tensor", 1.0, [[0.0]]]))
        case 12 if value.dim() > 1:
            return value.transpose(0, -1)
    return value


def arguments_of(draw, given: dict[str, Any]) -> dict[str, Any]:
    """The arguments, up to two of them spoilt."""
    for name in draw(st.lists(st.sampled_from(sorted(given)), max_size=2, unique=True)):
        given[name] = draw(spoilt(given[name]))
    return given


def assert_close(found: torch.Tensor, right: torch.Tensor) -> None:
    # Weights of 3e38 are fair arguments; what they give need not be finite, but the same.
    if torch.isfinite(right).all() and right.abs().max() < 1e6:
        torch.testing.assert_close(found, right, rtol=1e-3, atol=1e-4)


@st.composite
def episodes(draw):
    torch.manual_seed(draw(st.integers(0, 10_000)))
    batch, leaves = draw(st.sampled_from([1, 3, 17])), 2 ** draw(st.integers(0, 3))
    sequence, every, symbols = draw(st.booleans()), draw(st.integers(1, 2)), draw(st.integers(1, 3))
    depth, soft = draw(st.integers(1, 2)), draw(st.booleans())
    if sequence:
        model = LSTMHAM(3, 2, cells=4, size=5, hidden=3, depth=depth, every=every, soft=soft)
    else:
        every, model = 1, RawHAM(3, 2, size=5, hidden=3, depth=depth, soft=soft)
    time = symbols * every
    uniforms = [None] if soft else [None, forced(torch.randint(0, leaves, (batch, time)), leaves)]
    given = {
        "parameters": named_parameters(model.networks()),
        "inputs": torch.randn(batch, leaves if sequence else time, 3),
        "lengths": torch.randint(0, leaves + 1, (batch,)) if sequence else None,
        "durations": torch.randint(0, symbols + 1, (batch,)) * every,
        "uniforms": draw(st.sampled_from(uniforms)),
        "leaves": leaves,
        "timesteps": time,
        "every": every,
        "soft": soft,
        "penalties": Penalties(
            pull=draw(st.sampled_from([0.0, 0.1])),
            exploration=draw(st.sampled_from([0.0, 0.1])) if soft else 0.0,
            entropy=draw(st.sampled_from(["inverse", "negative", "positive"])),
            tree_clip=draw(st.sampled_from([0.0, 0.1])) if soft else 0.0,
        ),
        "keep": draw(st.booleans()),
        "final_tree": draw(st.booleans()),
    }
    return model, arguments_of(draw, given)


def run_episode(parameters: Any, given: dict[str, Any]) -> Any:
    order = {name: value for name, value in given.items() if name in Order._fields}
    options = {name: value for name, value in given.items() if name not in ("parameters", *order)}
    return native.episode(parameters, Order(**order), **options)


@cases(150)
@given(episodes())
def test_episodes(drawn):
    model, given = drawn
    sequence = isinstance(model, LSTMHAM)
    try:
        outputs = run_episode(given["parameters"], given).outputs
        outputs.sum().backward() if outputs.requires_grad else None
    except REFUSALS:
        return
    # It was taken, so it was right, and plain PyTorch must come to the same.
    ham.set_backend("reference")
    model = copy.deepcopy(model)
    with torch.no_grad():
        for name, parameter in named_parameters(model.networks()).items():
            parameter.copy_(given["parameters"][name])
        if int(given["durations"].max()) == 0 or bool(given["soft"]) != model.soft:
            return
        if given["uniforms"] is None and not model.soft:
            return
        model.every = given["every"]
        asked = given["durations"] // given["every"]
        if not torch.equal(asked * given["every"], given["durations"]):
            return
        lengths = given["lengths"] if sequence else asked
        right = model(given["inputs"], lengths, asked, leaves=given["leaves"], uniforms=given["uniforms"])
    assert_close(outputs[:, : right.outputs.shape[1]], right.outputs)


@st.composite
def accesses(draw):
    torch.manual_seed(draw(st.integers(0, 10_000)))
    batch, leaves = draw(st.sampled_from([1, 3, 17])), 2 ** draw(st.integers(0, 3))
    memory = HAM(3, 4, 5, hidden=3, depth=draw(st.integers(1, 2)))
    tree = memory.init(torch.randn(batch, leaves, 3)).tree.detach()
    leaf = torch.randint(0, leaves, (batch,))
    given = {"tree": tree, "query": torch.randn(batch, 4)}
    if draw(st.booleans()):
        return memory, "attend", arguments_of(draw, given | {"uniforms": forced(leaf, leaves)})
    active = draw(st.sampled_from([None, torch.rand(batch) < 0.5]))
    return memory, "update", arguments_of(draw, given | {"leaf": leaf, "active": active})


@cases(150)
@given(accesses())
def test_single_accesses(drawn):
    memory, which, given = drawn
    before = given["tree"].clone() if isinstance(given["tree"], torch.Tensor) else None
    ham.set_backend("native")
    try:
        with torch.no_grad():
            if which == "attend":
                call = (given["tree"], given["query"], given["uniforms"], memory.search)
                found = table.run("attend", reference.attend, *call)[0]
            else:
                call = (given["tree"], given["leaf"], given["query"], given["active"])
                found = table.run("update", reference.update, *call, memory.write, memory.join)[0]
    except REFUSALS:
        return
    ham.set_backend("reference")
    with torch.no_grad():
        state = State(before)
        if which == "attend":
            right = memory.attend(state, given["query"], uniforms=given["uniforms"]).turn_logits
        else:
            everywhere = forced(given["leaf"].clamp(0, state.leaves - 1), state.leaves)
            read = memory.attend(state, given["query"], uniforms=everywhere)
            right = memory.update(state, read, given["query"], active=given["active"]).tree
    if right.numel():
        assert_close(found, right)


@st.composite
def readings(draw):
    torch.manual_seed(draw(st.integers(0, 10_000)))
    batch, slots, symbols = (
        draw(st.sampled_from([1, 3, 17])),
        draw(st.integers(1, 4)),
        draw(st.integers(1, 4)),
    )
    model = draw(st.sampled_from([EncoderDecoder, AttentiveDecoder]))(3, 2, cells=4)
    targets = torch.randint(0, 2, (batch, symbols, 2)).float()
    return model, {
        "inputs": torch.randn(batch, slots, 3),
        "lengths": torch.randint(1, slots + 1, (batch,)),
        "asked": torch.randint(0, symbols + 1, (batch,)),
        "targets": targets,
        "counted": torch.rand(batch, symbols) < 0.7,
    }


@cases(150)
@given(st.data())
def test_sequences(data):
    """Reading and writing, and what is read given to the writing, each with arguments spoilt."""
    model, batch = data.draw(readings())
    attentive = isinstance(model, AttentiveDecoder)
    own = dict(model.encoder.named_parameters())
    reading = {"parameters": own, "rows": batch["inputs"], "lengths": batch["lengths"]}
    states, state, cell = native.read(**reading)
    symbols = batch["targets"].shape[1]
    decoding = {
        "parameters": named_parameters(model.decoding()),
        "state": state,
        "cell": None if attentive else cell,
        "asked": batch["asked"],
        "targets": data.draw(st.sampled_from([None, batch["targets"]])),
        "symbols": symbols,
        "memory": states if attentive else None,
        "lengths": batch["lengths"] if attentive else None,
    }
    run, given = data.draw(st.sampled_from([("read", reading), ("decode", decoding)]))
    given = arguments_of(data.draw, {name: value for name, value in given.items() if value is not None})
    given = dict.fromkeys(decoding if run == "decode" else reading) | given
    try:
        found = getattr(native, run)(**given)
        found = found[0] if run == "read" else found
        found.sum().backward() if found.requires_grad else None
    except REFUSALS:
        return
    # It was taken, so it was right, and plain PyTorch must come to the same.
    if run == "read" and len(given["lengths"]) and int(given["lengths"].min()) > 0:
        lstm = torch.nn.LSTM(3, 4, batch_first=True, bidirectional=attentive)
        with torch.no_grad():
            for name, parameter in lstm.named_parameters():
                parameter.copy_(given["parameters"][name])
            right, _, _ = read_rows(lstm, given["rows"], given["lengths"])
        assert_close(found[:, : right.shape[1]], right)


@cases(100)
@given(st.data())
def test_gradients_of_sequences(data):
    model, batch = data.draw(readings())
    weights = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    made = arguments_of(data.draw, {"weights": weights, "gradient": torch.zeros_like(weights)})
    given = arguments_of(data.draw, batch)
    try:
        vectors = training.Vectors(**made, starts=starts_of(model))
        engine = training.SequenceGradient(vectors, sizes_of_model(model))
        terms, norm = engine.of(**given)
    except REFUSALS:
        return
    if made["weights"].abs().max() < 1e6 and given["inputs"].abs().max() < 1e6 > given["targets"].abs().max():
        assert torch.isfinite(torch.tensor([*terms.values(), norm])).all()
        assert norm == pytest.approx(float(torch.linalg.vector_norm(made["gradient"].double())), rel=1e-6)


OPTIONS = training.Options(
    runs=1, reward="hamming", baseline="learned", normalise=True,
    discount=0.9, rightward=0.5, least_entropy=1e-3, least_square=1e-12,
)  # fmt: skip


@st.composite
def batches(draw):
    torch.manual_seed(draw(st.integers(0, 10_000)))
    batch, leaves, symbols = draw(st.sampled_from([1, 3, 17])), 2 ** draw(st.integers(1, 3)), 3
    model = LSTMHAM(3, 2, cells=4, size=5, hidden=3)
    weights = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    made = arguments_of(draw, {"weights": weights, "gradient": torch.zeros_like(weights), "every": 1})
    given = {
        "inputs": torch.randn(batch, leaves, 3),
        "lengths": torch.randint(0, leaves + 1, (batch,)),
        "asked": torch.randint(0, symbols + 1, (batch,)),
        "targets": torch.randint(0, 2, (batch, symbols, 2)).float(),
        "counted": torch.rand(batch, symbols) < 0.7,
        "uniforms": torch.rand(batch, symbols, depth_of(leaves)),
        "leaves": leaves,
        "reinforce": 1.0,
        "exploration": 1e-3,
    }
    return model, made, arguments_of(draw, given)


@cases(150)
@given(batches())
def test_gradients_of_batches(drawn):
    model, made, given = drawn
    try:
        vectors = training.Vectors(made["weights"], made["gradient"], starts_of(model))
        engine = training.Gradient(vectors, sizes_of_model(model), made["every"], OPTIONS)
        terms, norm = engine.of(**given, entropy="inverse")
    except REFUSALS:
        return
    usual = all(
        torch.isfinite(value).all() and value.abs().max() < 1e6
        for value in (made["weights"], given["inputs"], given["targets"])
    )
    if usual:
        assert torch.isfinite(torch.tensor([*terms.values(), norm])).all()
        assert norm == pytest.approx(float(torch.linalg.vector_norm(made["gradient"].double())), rel=1e-6)


@cases(80)
@given(st.data())
def test_steps_of_adam(data):
    torch.manual_seed(data.draw(st.integers(0, 10_000)))
    many = data.draw(st.sampled_from([1, 15, 16, 33]))
    names = ("weights", "gradient", "mean", "square")
    given = arguments_of(data.draw, {name: torch.rand(many) for name in names} | {"steps": 3, "scale": 1.0})
    before = {name: given[name].clone() for name in names if isinstance(given[name], torch.Tensor)}
    decays = {"mean_decay": 0.9, "square_decay": 0.999, "epsilon": 1e-8}
    try:
        steps.adam(**given, rate=0.01, **decays)
    except (*REFUSALS, ArithmeticError):
        return
    gradient = before["gradient"] * float(given["scale"])
    mean = 0.9 * before["mean"] + 0.1 * gradient
    square = 0.999 * before["square"] + 0.001 * gradient.square()
    number = given["steps"]
    step = 0.01 * mean / (1 - 0.9**number) / ((square / (1 - 0.999**number)).sqrt() + 1e-8)
    assert_close(given["weights"], before["weights"] - step)


@pytest.mark.parametrize("name", ["inputs", "targets", "uniforms"])
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_what_is_not_finite_in_a_batch_is_named(name, bad):
    model = LSTMHAM(3, 2, cells=4, size=5, hidden=3)
    weights = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    vectors = training.Vectors(weights, torch.zeros_like(weights), starts_of(model))
    engine = training.Gradient(vectors, sizes_of_model(model), 1, OPTIONS)
    given = {
        "inputs": torch.zeros(2, 4, 3), "lengths": torch.tensor([4, 1]), "asked": torch.tensor([3, 2]),
        "targets": torch.zeros(2, 3, 2), "counted": torch.ones(2, 3, dtype=torch.bool), "uniforms": torch.rand(2, 3, 2),
    }  # fmt: skip
    given[name][0, 0, 0] = bad
    with pytest.raises(InputError, match=f"{name} must be finite"):
        engine.of(**given, leaves=4, reinforce=1.0, exploration=0.0, entropy="inverse")
