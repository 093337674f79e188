"""On four leaves every sequence of decisions can be enumerated, so the estimator has nowhere to hide.

The exact gradient is that of Σ_A p(A)·log p(y|A), taken by autograd through p(A) itself; with the
Hamming reward R it is Σ_A p(A)·[∇ log p(y|A) + R(A)·∇ log p(A)].
"""

import itertools

import pytest
import torch

from ham.models import LSTMHAM, forced
from ham.ops import Episode
from ham.tasks import Bits
from ham.train import losses
from ham.train.objective import Examples, objective
from settings import run_with

LEAVES = 4
SHAPES = {"two symbols": (1, 2), "three symbols": (1, 3), "one symbol in two accesses": (2, 1)}


class Small:
    """One example for a small model, and every way through it."""

    def __init__(self, every, symbols, dtype=torch.float64):
        torch.manual_seed(11)
        self.every, self.symbols = every, symbols
        self.model = LSTMHAM(2, 2, cells=2, size=3, hidden=3, every=every).to(dtype)
        for parameter in self.model.parameters():
            parameter.data += 0.3 * torch.randn_like(parameter)
        self.inputs = torch.rand(1, LEAVES, 2, dtype=dtype)
        self.targets = torch.tensor([[[1.0, 0.0], [0.0, 0.0], [1.0, 1.0]]], dtype=dtype)[:, :symbols]
        ways = list(itertools.product(range(LEAVES), repeat=every * symbols))
        self.ways = forced(torch.tensor(ways), LEAVES).to(dtype)

    @property
    def parameters(self):
        return {n: p for n, p in self.model.named_parameters() if not n.startswith("baseline")}

    def examples(self, batch):
        return Examples(
            inputs=self.inputs.expand(batch, -1, -1),
            lengths=torch.full((batch,), 3),
            targets=self.targets.expand(batch, -1, -1),
            counted=torch.ones(batch, self.symbols, dtype=torch.bool),
            asked=torch.full((batch,), self.symbols),
            codec=Bits(self.targets.shape[-1]),
        )

    def run(self, uniforms):
        given = self.examples(len(uniforms))
        episode = self.model(given.inputs, given.lengths, given.asked, leaves=LEAVES, uniforms=uniforms)
        return episode, given

    def estimate(self, uniforms, weights=(1.0,), **changes):
        """The gradient that training would use for batches of these decisions, weighted and added up."""
        size = len(uniforms) // len(weights)
        settings = {"runs": 1, "discount": 1.0, "baseline": "none", "normalise": False, **changes}
        training = run_with(batch=size, **settings)
        given = self.examples(size)
        together, _ = self.run(uniforms)
        loss = 0.0
        for weight, episode in zip(weights, split(together, size), strict=True):
            terms = objective(
                episode,
                given,
                self.model.baseline,
                training,
                every=self.every,
                reinforce=1.0,
                exploration=0.0,
            )
            loss = loss + weight * terms.loss
        return flat(torch.autograd.grad(loss, self.parameters.values()))

    def probabilities(self):
        with torch.no_grad():
            return self.run(self.ways)[0].log_probs.sum((1, 2)).exp()

    def exact(self, reward, rightward=0.0):
        episode, given = self.run(self.ways)
        counted = given.counted.to(self.inputs.dtype)
        log_p_y = given.log_prob(episode.outputs).sum(1)
        log_p_a = episode.log_probs.sum((1, 2))
        if reward == "log-probability":
            bound = (log_p_a.exp() * log_p_y).sum()
        else:
            hits = losses.symbol_hits(given.hits(episode.outputs.detach()), counted)
            moved = losses.moved_right(episode.leaves, self.every) * (hits == 1).all(1, keepdim=True)
            earned = hits.sum(1) + rightward * moved.to(hits.dtype).sum(1)
            bound = (log_p_a.exp().detach() * (log_p_y + earned * log_p_a)).sum()
        return -flat(torch.autograd.grad(bound, self.parameters.values()))


def split(episode, size):
    """The episodes of a batch's consecutive parts."""
    parts = (episode.outputs, episode.turn_logits, episode.turns, episode.leaves, episode.queries)
    return itertools.starmap(Episode, zip(*(part.split(size) for part in parts), strict=True))


def flat(gradients):
    return torch.cat([gradient.flatten() for gradient in gradients])


def test_the_ways_are_all_there_is():
    small = Small(1, 3)
    p = small.probabilities()
    assert len(p) == 64
    assert p.sum().item() == pytest.approx(1)
    assert p.max() < 0.5, "the example should be undecided, or the test says little"


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("reward", ["log-probability", "hamming"])
@pytest.mark.parametrize("baseline", ["none", "learned"])
def test_the_estimators_expectation_is_the_exact_gradient(shape, reward, baseline):
    """No sampling at all: every way's estimate, weighted by its probability."""
    small = Small(*SHAPES[shape])
    mean = small.estimate(small.ways, small.probabilities(), reward=reward, baseline=baseline)
    exact = small.exact(reward)
    assert exact.abs().max() > 0.01
    torch.testing.assert_close(mean, exact, rtol=1e-9, atol=1e-11)


def test_what_an_order_earns_is_a_reward_like_any_other():
    small = Small(2, 1)
    episode, _ = small.run(small.ways)
    (ascending,) = (episode.leaves == torch.tensor([1, 2])).all(1).nonzero()
    small.targets = (episode.outputs[ascending] > 0).to(small.targets.dtype).detach()
    mean = small.estimate(small.ways, small.probabilities(), every=2, rightward=0.7)
    torch.testing.assert_close(mean, small.exact("hamming", rightward=0.7), rtol=1e-9, atol=1e-11)
    assert not torch.allclose(mean, small.exact("hamming")), "or the test says little"


@pytest.mark.parametrize("reward", ["log-probability", "hamming"])
def test_leave_one_out_has_the_same_expectation(reward):
    """Over all pairs of ways, each pair being two runs of one input."""
    small = Small(1, 2)
    p = small.probabilities()
    i, j = torch.cartesian_prod(*[torch.arange(len(p))] * 2).T
    pairs = torch.stack([small.ways[i], small.ways[j]], 1).flatten(0, 1)
    mean = small.estimate(pairs, p[i] * p[j], reward=reward, baseline="leave-one-out", runs=2)
    torch.testing.assert_close(mean, small.exact(reward), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("reward", ["log-probability", "hamming"])
@pytest.mark.parametrize("baseline", ["none", "learned", "leave-one-out"])
def test_the_sampled_mean_is_within_its_standard_error(engine, reward, baseline):
    """The same with real samples, a few thousand in batches, by either engine."""
    small = Small(1, 3, torch.float64 if engine == "reference" else torch.float32)
    runs = 4 if baseline == "leave-one-out" else 1
    batches = [
        small.estimate(
            torch.rand(100, 3, 2, dtype=small.inputs.dtype), reward=reward, baseline=baseline, runs=runs
        )
        for _ in range(60)
    ]
    means = torch.stack(batches).double()
    error = means.std(0) / len(batches) ** 0.5
    moves = error > 1e-9
    z = ((means.mean(0) - small.exact(reward).double()) / error)[moves]
    assert moves.sum() > 50
    # A t-distribution of 59 degrees of freedom exceeds 5 with probability 6e-6.
    assert z.abs().max() < 5
    assert z.square().mean() < 2


def test_a_wrong_estimator_would_be_caught():
    """Discounting is biased: the very comparison above must fail for it."""
    small = Small(1, 2)
    mean = small.estimate(small.ways, small.probabilities(), reward="log-probability", discount=0.5)
    assert (mean - small.exact("log-probability")).abs().max() > 1e-3
