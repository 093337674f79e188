"""The baselines keep the contract of a model, see no padding, and learn."""

import numpy as np
import pytest
import torch

from ham import recipes, tasks
from ham.models import AttentiveDecoder, EncoderDecoder
from ham.train.losses import wrong_parts
from ham.train.objective import Examples, objective
from settings import run_with

pytestmark = pytest.mark.usefixtures("engine")

KINDS = [EncoderDecoder, AttentiveDecoder]
BOTH = pytest.mark.parametrize("kind", KINDS)
ONLINE = pytest.mark.parametrize("online", [False, True])


def made(kind, *, online, cells=6):
    torch.manual_seed(2)
    task = tasks.get("queue" if online else "reverse")
    rng = np.random.default_rng(0)
    examples = Examples.of(task.sample(rng, 6, 8, np.array([1, 2, 8, 5, 3, 8])), task.outputs)
    return kind(task.features, task.outputs.width, cells=cells, online=online), examples


def outputs(model, examples, **named):
    return model(examples.inputs, examples.lengths, examples.asked, leaves=8, **named)


@BOTH
@ONLINE
@pytest.mark.parametrize("taught", [False, True])
def test_an_episode_without_decisions(kind, online, taught):
    model, examples = made(kind, online=online)
    episode = outputs(model, examples, targets=examples.targets if taught else None)
    assert episode.outputs.shape == examples.targets.shape
    assert episode.turn_logits.shape == (*examples.counted.shape, 0)
    assert (episode.leaves == -1).all()
    assert model.decisions(8) == 0
    beyond = torch.arange(examples.counted.shape[1]) >= examples.asked[:, None]
    assert beyond.any()
    assert not episode.outputs[beyond].any()
    terms = objective(episode, examples, model.baseline, run_with(), every=1, reinforce=1.0, exploration=1.0)
    terms.loss.backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in model.parameters())


@BOTH
@ONLINE
def test_nothing_beyond_an_examples_end_matters(kind, online):
    model, examples = made(kind, online=online)
    results = []
    for padding in (0.0, 5.0):
        rows = torch.arange(8) >= (examples.asked if online else examples.lengths)[:, None]
        examples.inputs[rows] = padding
        examples.targets[~examples.counted] = padding
        for parameter in model.parameters():
            parameter.grad = None
        taught = outputs(model, examples, targets=examples.targets).outputs
        (taught * examples.counted[..., None]).square().sum().backward()
        gradients = [p.grad.clone() for p in model.parameters()]
        results.append([taught, outputs(model, examples).outputs, *gradients])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other)


@BOTH
@ONLINE
def test_examples_do_not_influence_each_other(kind, online):
    model, examples = made(kind, online=online)
    together = outputs(model, examples).outputs
    for b in range(6):
        if not (asked := int(examples.asked[b])):
            continue
        one = slice(b, b + 1)
        alone = model(examples.inputs[one], examples.lengths[one], examples.asked[one], leaves=8).outputs
        torch.testing.assert_close(alone[0], together[b, :asked])


@BOTH
def test_greedy_is_what_being_taught_ones_own_outputs_gives(kind):
    model, examples = made(kind, online=False)
    for parameter in model.parameters():
        parameter.data.mul_(3)
    greedy = outputs(model, examples).outputs
    said = (greedy > 0).float()
    assert 0.1 < said.mean() < 0.9
    torch.testing.assert_close(outputs(model, examples, targets=said).outputs, greedy)


@BOTH
def test_a_symbol_depends_on_the_ones_before_it_and_no_later_one(kind):
    model, examples = made(kind, online=False)
    targets = examples.targets.clone()
    before = outputs(model, examples, targets=targets).outputs
    targets[:, 3] = 1 - targets[:, 3]
    after = outputs(model, examples, targets=targets).outputs
    assert torch.equal(before[:, :4], after[:, :4])
    assert (before[2, 4] != after[2, 4]).any()


@BOTH
def test_online_a_row_is_not_seen_before_its_time(kind):
    model, examples = made(kind, online=True)
    asked = torch.full((6,), 8)
    before = model(examples.inputs, asked, asked, leaves=8).outputs
    examples.inputs[:, 4] += 1
    after = model(examples.inputs, asked, asked, leaves=8).outputs
    assert torch.equal(before[:, :4], after[:, :4])
    assert (before[:, 4] != after[:, 4]).any()


def test_attention_is_a_mean_over_the_rows_in_use():
    model = AttentiveDecoder(3, 2, cells=4)
    attention = model.attention
    states, queries = torch.rand(2, 5, 8), torch.rand(2, 3, 4)
    usable = torch.tensor([[[True] * 5], [[True, True, False, False, False]]])
    # A score of zero everywhere is a plain mean.
    attention.score.weight.data.zero_()
    context = attention(queries, states, attention.of_state(states), usable)
    torch.testing.assert_close(context[0, 0], states[0].mean(0))
    torch.testing.assert_close(context[1, 2], states[1, :2].mean(0))


def test_every_recipe_exceeds_the_largest_ham():
    """The paper's rule: more parameters than the biggest of the HAM models, but for those whose JOIN is no MLP."""

    def count(name):
        run = recipes.get(name)
        return sum(p.numel() for p in run.model.build(tasks.get(run.task)).parameters())

    largest = max(count(name) for name in recipes.HARD if recipes.get(name).model.join != "highway")
    for task in recipes.SEQUENCES:
        for kind in ("lstm", "lstm+a"):
            assert count(f"{task}-{kind}") > largest, (task, kind)


@BOTH
def test_overfits_a_tiny_reverse(kind):
    task = tasks.get("reverse")
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    examples = Examples.of(task.sample(rng, 8, 4, task.draw_lengths(rng, 8, 1, 4)), task.outputs)
    model = kind(task.features, task.outputs.width, cells=24)
    adam = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(150):
        adam.zero_grad()
        episode = model(examples.inputs, examples.lengths, examples.asked, leaves=4, targets=examples.targets)
        objective(
            episode, examples, None, run_with(), every=1, reinforce=1.0, exploration=0.0
        ).loss.backward()
        adam.step()
    greedy = model(examples.inputs, examples.lengths, examples.asked, leaves=4).outputs
    assert not wrong_parts(examples.hits(greedy), examples.counted).any()
