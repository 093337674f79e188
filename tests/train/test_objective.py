"""The objective as a whole: what is summed, what is averaged, and what may not matter."""

import numpy as np
import pytest
import torch

from ham import tasks
from ham.models import LSTMHAM, RawHAM
from ham.ops import Episode
from ham.ops.episode import LEAST_ENTROPY
from ham.tasks import Batch, Bits
from ham.train.objective import Examples, objective
from settings import run_with

FULL = {"reinforce": 1.0, "exploration": 0.01}


def settings(**changes):
    return run_with(**{"batch": 4, "runs": 2, "baseline": "none", "normalise": False, **changes})


def by_hand():
    """Two examples, one decision a timestep; the second example ends after one symbol."""
    episode = Episode(
        outputs=torch.tensor([[[2.0], [-1.0]], [[1.0], [0.0]]], requires_grad=True),
        turn_logits=torch.tensor([[[0.5], [-0.5]], [[1.0], [0.0]]], requires_grad=True),
        turns=torch.tensor([[[True], [True]], [[False], [False]]]),
        leaves=torch.tensor([[1, 1], [0, -1]]),
        queries=torch.tensor([[[1.0], [2.0]], [[3.0], [0.0]]]),
    )
    examples = Examples(
        inputs=torch.zeros(2, 2, 1),
        lengths=torch.tensor([2, 1]),
        targets=torch.tensor([[[1.0], [1.0]], [[1.0], [0.0]]]),
        counted=torch.tensor([[True, True], [True, False]]),
        asked=torch.tensor([2, 1]),
        codec=Bits(1),
    )
    return episode, examples


def log_sigmoid(x):
    return float(torch.nn.functional.logsigmoid(torch.tensor(x)))


def test_the_hamming_objective_by_hand(engine):
    episode, examples = by_hand()
    terms = objective(
        episode, examples, None, settings(discount=0.5), every=1, reinforce=2.0, exploration=0.0
    )
    cross_entropy = -(log_sigmoid(2.0) + log_sigmoid(-1.0) + log_sigmoid(1.0)) / 2
    assert terms.parts["cross_entropy"].item() == pytest.approx(cross_entropy)
    # Hits 1, 0 and 1: returns 1 + 0/2 and 0, and 1. Right at 0.5 and −0.5, left at 1.
    reinforce = -(1 * log_sigmoid(0.5) + 0 * log_sigmoid(-0.5) + 1 * log_sigmoid(-1.0)) / 2
    assert terms.loss.item() == pytest.approx(cross_entropy + 2 * reinforce)
    assert terms.wrong == 0.5


def test_the_log_probability_objective_by_hand(engine):
    episode, examples = by_hand()
    training = settings(discount=1.0, reward="log-probability")
    terms = objective(episode, examples, None, training, every=1, reinforce=1.0, exploration=0.0)
    first, second, third = log_sigmoid(2.0), log_sigmoid(-1.0), log_sigmoid(1.0)
    returns = (first + second) * log_sigmoid(0.5) + second * log_sigmoid(-0.5) + third * log_sigmoid(-1.0)
    assert terms.loss.item() == pytest.approx(-(first + second + third) / 2 - returns / 2)


def test_learned_baseline_and_exploration_by_hand(engine):
    episode, examples = by_hand()
    baseline = torch.nn.Linear(1, 1)
    baseline.weight.data.fill_(0.5)
    baseline.bias.data.zero_()
    training = settings(discount=0.5, baseline="learned", entropy="negative")
    terms = objective(episode, examples, baseline, training, every=1, reinforce=1.0, exploration=0.1)
    cross_entropy = -(log_sigmoid(2.0) + log_sigmoid(-1.0) + log_sigmoid(1.0)) / 2
    # Returns 1, 0, 1 against predictions 0.5, 1, 1.5.
    error = (0.25 + 1 + 0.25) / 3
    reinforce = -(0.5 * log_sigmoid(0.5) - 1 * log_sigmoid(-0.5) - 0.5 * log_sigmoid(-1.0)) / 2
    entropy = sum(float(losses_entropy(x)) for x in (0.5, -0.5, 1.0))
    assert terms.loss.item() == pytest.approx(cross_entropy + error + reinforce - 0.1 * entropy / 2)
    assert terms.entropy == pytest.approx(entropy / 3)


def losses_entropy(logit):
    p = torch.sigmoid(torch.tensor(logit, dtype=torch.float64))
    return -p * p.log() - (1 - p) * (1 - p).log()


def test_a_model_that_decides_nothing_has_only_its_cross_entropy():
    episode, examples = by_hand()
    none = torch.zeros(2, 2, 0)
    soft = Episode(episode.outputs, none, none.bool(), episode.leaves, episode.queries)
    terms = objective(soft, examples, None, settings(), every=1, **FULL)
    assert list(terms.parts) == ["cross_entropy"]
    # In order, the first example's second symbol counts as much as the first one is right: with σ(2)^2 for rate 2.
    ordered = objective(soft, examples, None, settings(in_order=2.0), every=1, **FULL)
    weight = torch.sigmoid(torch.tensor(2.0)).item() ** 2
    expected = -(log_sigmoid(2.0) + weight * log_sigmoid(-1.0) + log_sigmoid(1.0)) / 2
    assert ordered.loss.item() == pytest.approx(expected)
    assert ordered.loss is ordered.parts["cross_entropy"]


def test_examples_run_to_their_last_counted_symbol():
    counted = np.array([[True, True, False, False], [False, False, True, False], [False] * 4])
    batch = Batch(
        np.zeros((3, 4, 2), np.float32), np.array([1, 4, 2]), np.zeros((3, 4, 2), np.float32), counted
    )
    examples = Examples.of(batch, Bits(2))
    assert examples.asked.tolist() == [2, 3, 0]
    assert examples.targets.shape == (3, 3, 2)
    assert examples.counted.tolist() == counted[:, :3].tolist()


def test_a_batch_that_asks_for_nothing_still_runs(engine):
    """A data structure of one leaf only ever sees a PUSH."""
    task = tasks.get("stack")
    rng = np.random.default_rng(0)
    examples = Examples.of(task.sample(rng, 4, 1, np.ones(4, np.int64)), task.outputs)
    assert examples.asked.tolist() == [0] * 4
    model = RawHAM(task.features, task.outputs.width, size=4, hidden=4)
    uniforms = torch.rand(4, 1, 0)
    episode = model(examples.inputs, examples.lengths, examples.asked, leaves=1, uniforms=uniforms)
    terms = objective(episode, examples, model.baseline, settings(), every=1, **FULL)
    assert terms.loss.item() == 0
    assert terms.entropy == 0


def loss_and_gradients(model, examples, training, uniforms):
    for parameter in model.parameters():
        parameter.grad = None
    episode = model(examples.inputs, examples.lengths, examples.asked, leaves=8, uniforms=uniforms)
    terms = objective(episode, examples, model.baseline, training, every=model.every, **FULL)
    terms.loss.backward()
    return [terms.loss, *(p.grad for p in model.parameters())]


@pytest.mark.parametrize("reward", ["hamming", "log-probability"])
@pytest.mark.parametrize("baseline", ["learned", "leave-one-out", "none"])
@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize("name", ["reverse", "queue"])
def test_nothing_after_the_end_of_output_matters(engine, name, reward, baseline, normalise):
    """Inputs, targets and random numbers beyond an example's end: same loss, same gradient, bit for bit."""
    task = tasks.get(name)
    rng = np.random.default_rng(0)
    lengths = np.array([2, 5, 7, 3])
    batch = task.sample(rng, 4, 8, lengths).repeat(2)
    if task.online:
        model = RawHAM(task.features, task.outputs.width, size=4, hidden=4)
    else:
        model = LSTMHAM(task.features, task.outputs.width, cells=4, size=4, hidden=4, every=2)
    examples = Examples.of(batch, task.outputs)
    training = settings(batch=8, reward=reward, baseline=baseline, normalise=normalise)
    timesteps = examples.counted.shape[1] * model.every
    uniforms = torch.from_numpy(rng.random((8, timesteps, 3), np.float32))
    clean = loss_and_gradients(model, examples, training, uniforms)

    symbols = torch.arange(examples.counted.shape[1])
    rows = torch.arange(examples.inputs.shape[1])
    examples.targets[~examples.counted] = 1 - examples.targets[~examples.counted]
    examples.inputs[rows >= torch.maximum(examples.lengths, examples.asked)[:, None]] = 3.0
    ended = (symbols >= examples.asked[:, None]).repeat_interleave(model.every, 1)
    assert ended.any()
    uniforms[ended] = 1 - uniforms[ended]
    for before, after in zip(clean, loss_and_gradients(model, examples, training, uniforms), strict=True):
        assert (before is None and after is None) or torch.equal(before, after)


def test_the_constant_in_one_over_h_is_small():
    assert LEAST_ENTROPY <= 1e-3
