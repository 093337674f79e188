"""LSTM+HAM and raw HAM: the order of a timestep, durations, and what may not matter."""

import pytest
import torch

from ham.core.errors import InputError
from ham.models import LSTMHAM, RawHAM
from ham.models.transformations import MLP


def examples(batch=5, leaves=8, features=3, every=1, depth=3, seed=1):
    random = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, leaves + 1, (batch,), generator=random)
    asked = torch.randint(1, 6, (batch,), generator=random)
    inputs = torch.rand(batch, leaves, features, generator=random)
    uniforms = torch.rand(batch, int(asked.max()) * every, depth, generator=random)
    return inputs, lengths, asked, uniforms


@pytest.mark.parametrize("every", [1, 2, 3])
def test_a_timestep_is_attend_control_output_write(engine, every):
    """Figures 2 to 5: the old state attends, the value enters the LSTM, the new state gives and writes."""
    model = LSTMHAM(3, 2, cells=4, size=5, hidden=6, every=every)
    inputs, lengths, asked, uniforms = examples(batch=1, every=every)
    asked[:] = 3
    uniforms = torch.rand(1, 3 * every, 3)
    episode = model(inputs, lengths, asked, leaves=8, uniforms=uniforms, final_tree=True)

    state = model.memory.init(inputs, lengths)
    h = c = torch.zeros(1, 4)
    outputs = []
    for t in range(3 * every):
        read = model.memory.attend(state, h, uniforms=uniforms[:, t])
        torch.testing.assert_close(episode.queries[:, t], h)
        torch.testing.assert_close(episode.turn_logits[:, t], read.turn_logits)
        assert episode.leaves[:, t] == read.leaf
        h, c = model.controller(read.value, (h, c))
        if t % every == every - 1:
            outputs.append(model.output(h))
        state = model.memory.update(state, read, h)
    torch.testing.assert_close(episode.outputs, torch.stack(outputs, 1))
    torch.testing.assert_close(episode.tree[:, 1:], state.tree[:, 1:])
    assert episode.outputs.shape == (1, 3, 2)


def test_raw_ham_is_driven_by_its_rows(engine):
    model = RawHAM(3, 2, size=5, hidden=6)
    inputs, _, asked, _ = examples(batch=1)
    asked[:] = 4
    uniforms = torch.rand(1, 4, 3)
    episode = model(inputs, asked, asked, leaves=8, uniforms=uniforms, final_tree=True)
    state = model.memory.empty(1, 8)
    for t in range(4):
        x = inputs[:, t]
        read = model.memory.attend(state, x, uniforms=uniforms[:, t])
        torch.testing.assert_close(episode.outputs[:, t], model.output(read.value))
        torch.testing.assert_close(episode.queries[:, t], x)
        state = model.memory.update(state, read, x)
    torch.testing.assert_close(episode.tree[:, 1:], state.tree[:, 1:])


def run(kind, leaves=8, **changes):
    torch.manual_seed(3)
    inputs, lengths, asked, uniforms = examples()
    if kind is RawHAM:
        model = RawHAM(3, 2, size=5, hidden=6)
        lengths = asked
    else:
        model = LSTMHAM(3, 2, cells=4, size=5, hidden=6)
    given = {"inputs": inputs.clone(), "uniforms": uniforms.clone()}
    for name, value in changes.items():
        time = torch.arange(given[name].shape[1])
        beyond = time >= (lengths if name == "inputs" else asked)[:, None]
        given[name][beyond] = value
    episode = model(
        given["inputs"], lengths, asked, leaves=leaves, uniforms=given["uniforms"], final_tree=True
    )
    return model, episode, asked


@pytest.mark.parametrize("kind", [LSTMHAM, RawHAM])
def test_everything_is_zero_beyond_an_examples_own_end(engine, kind):
    _, episode, asked = run(kind)
    beyond = torch.arange(int(asked.max())) >= asked[:, None]
    assert beyond.any()
    for part in (episode.outputs, episode.turn_logits, episode.queries):
        assert not part[beyond].any()
        assert part[~beyond].any()
    assert not episode.turns[beyond].any()
    assert (episode.leaves[beyond] == -1).all()
    assert (episode.leaves[~beyond] >= 0).all()


@pytest.mark.parametrize("kind", [LSTMHAM, RawHAM])
@pytest.mark.parametrize("beyond", ["inputs", "uniforms"])
def test_nothing_beyond_the_end_matters(engine, kind, beyond):
    results = []
    for value in (0.0, 0.9):
        model, episode, _ = run(kind, **{beyond: value})
        (episode.outputs.square().sum() + episode.turn_logits.sum() + episode.tree.sum()).backward()
        results.append([episode.outputs, episode.tree, *(p.grad for p in model.parameters())])
    for one, other in zip(*results, strict=True):
        assert (one is None and other is None) or torch.equal(one, other)


@pytest.mark.parametrize("kind", [LSTMHAM, RawHAM])
def test_examples_do_not_influence_each_other(engine, kind):
    model, together, asked = run(kind)
    inputs, lengths, _, uniforms = examples()
    lengths = asked if kind is RawHAM else lengths
    for b in range(len(asked)):
        alone = model(
            inputs[b : b + 1],
            lengths[b : b + 1],
            asked[b : b + 1],
            leaves=8,
            uniforms=uniforms[b : b + 1, : asked[b]],
        )
        torch.testing.assert_close(alone.outputs[0], together.outputs[b, : asked[b]])
        assert torch.equal(alone.leaves[0], together.leaves[b, : asked[b]])


@pytest.mark.parametrize("kind", [LSTMHAM, RawHAM])
def test_a_batch_that_asks_for_nothing_gives_one_empty_symbol(engine, kind):
    model, *_ = run(kind)
    nothing = torch.zeros(2, dtype=torch.int64)
    lengths = torch.ones_like(nothing)
    uniforms = torch.rand(2, 1, 3)
    episode = model(torch.rand(2, 8, 3), lengths, nothing, leaves=8, uniforms=uniforms)
    assert episode.outputs.shape == (2, 1, 2)
    assert not episode.outputs.any()
    assert (episode.leaves == -1).all()


@pytest.mark.parametrize("kind", [LSTMHAM, RawHAM])
def test_a_batch_of_nobody_is_refused(engine, kind):
    model, *_ = run(kind)
    nobody = torch.zeros(0, dtype=torch.int64)
    with pytest.raises(InputError, match="a batch must have at least one example"):
        model(torch.rand(0, 8, 3), nobody, nobody, leaves=8)


@pytest.mark.parametrize("kind", [LSTMHAM, RawHAM])
def test_greedy_runs_decide_by_one_half(engine, kind):
    model, _, asked = run(kind)
    inputs, lengths, *_ = examples()
    episode = model(inputs, asked if kind is RawHAM else lengths, asked, leaves=8)
    assert torch.equal(episode.turns, episode.turn_logits > 0)


@pytest.mark.parametrize("kind", [LSTMHAM, RawHAM])
def test_an_evaluation_that_keeps_nothing_gives_the_same_outputs(engine, kind):
    model, _, asked = run(kind)
    inputs, lengths, *_ = examples()
    lengths = asked if kind is RawHAM else lengths
    with torch.no_grad():
        kept = model(inputs, lengths, asked, leaves=8)
        short = model(inputs, lengths, asked, leaves=8, keep=False)
    assert torch.equal(kept.outputs, short.outputs)


def test_the_forget_gate_starts_open():
    controller = LSTMHAM(3, 2, cells=4).controller
    bias = (controller.bias_ih + controller.bias_hh)[4:8]
    assert (bias > 0.4).all()


@pytest.mark.parametrize("depth", [0, 3])
def test_networks_have_one_or_two_layers(depth):
    with pytest.raises(InputError, match=f"depth must be 1 or 2, got {depth}"):
        MLP(2, 2, hidden=3, depth=depth)
