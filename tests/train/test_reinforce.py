"""The REINFORCE loss of one's own network: by hand, against the whole objective, and as an estimate."""

import pytest
import torch

import ham
from ham.core.errors import InputError
from ham.models import SoftHAM
from ham.ops.episode import LEAST_ENTROPY

REWARDS = torch.tensor([[1.0, 0.0], [0.0, 2.0], [1.0, 1.0], [0.0, 0.0]])


@pytest.fixture
def reads():
    """Two timesteps of four examples, in a tree of four leaves."""
    memory = ham.HAM(3, 4, 5)
    state = memory.init(torch.rand(4, 4, 3))
    return [memory.attend(state, torch.rand(4, 4)) for _ in range(2)]


def log_prob(reads):
    return torch.stack([read.log_probs.sum(-1) for read in reads], 1)


def test_by_hand(reads):
    returns = torch.tensor([[1.0, 0.0], [1.0, 2.0], [1.5, 1.0], [0.0, 0.0]])  # discounted by one half
    loss = ham.reinforce(reads, REWARDS, discount=0.5, baseline="none", normalise=False)
    assert loss.item() == pytest.approx(-(returns * log_prob(reads)).sum().item() / 4)


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.float64])
def test_rewards_of_any_type_are_the_same_rewards(reads, dtype):
    given = {"discount": 0.5, "normalise": False}
    right = REWARDS.clamp(max=1)
    assert ham.reinforce(reads, right.to(dtype), **given) == ham.reinforce(reads, right, **given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"entropy": "Inverse"}, "entropy must be one of inverse, negative, positive, got 'Inverse'"),
        ({"discount": float("nan")}, "discount must be finite and not negative, got nan"),
        ({"exploration": -1.0}, "exploration must be finite and not negative, got -1.0"),
    ],
)
def test_what_means_nothing_is_refused(unchecked, reads, given, message):
    with pytest.raises(InputError, match=message):
        ham.reinforce(reads, REWARDS, **given)


def test_compared_with_the_other_runs(reads):
    all_together = ham.reinforce(reads, REWARDS, normalise=False)
    returns = REWARDS.flip(1).cumsum(1).flip(1)
    others = (returns.sum(0) - returns) / 3
    assert all_together.item() == pytest.approx(-((returns - others) * log_prob(reads)).sum().item() / 4)
    in_pairs = ham.reinforce(reads, REWARDS, runs=2, normalise=False)
    others = returns[[1, 0, 3, 2]]
    assert in_pairs.item() == pytest.approx(-((returns - others) * log_prob(reads)).sum().item() / 4)


def test_a_learned_baseline_learns(reads):
    expected = torch.rand(4, 2, requires_grad=True)
    loss = ham.reinforce(reads, REWARDS, baseline=expected, normalise=False)
    returns = REWARDS.flip(1).cumsum(1).flip(1)
    advantages = (returns - expected).detach()
    by_hand = -(advantages * log_prob(reads)).sum() / 4 + advantages.square().mean()
    assert loss.item() == pytest.approx(by_hand.item())
    (gradient,) = torch.autograd.grad(loss, expected)
    torch.testing.assert_close(gradient, 2 * (expected - returns).detach() / 8)


def test_an_estimator_of_ones_own(reads):
    loss = ham.reinforce(reads, REWARDS, baseline=lambda outcomes: outcomes.returns * 0 + 1, normalise=False)
    assert loss.item() == pytest.approx(-log_prob(reads).sum().item() / 4)


def test_normalised_advantages_do_not_know_the_scale_of_rewards(reads):
    one, hundred = (ham.reinforce(reads, REWARDS * scale).item() for scale in (1, 100))
    assert one == pytest.approx(hundred, rel=1e-4)


def test_exploration(reads):
    entropies = torch.stack([read.entropies for read in reads], 1)
    without = ham.reinforce(reads, REWARDS)
    inverse = ham.reinforce(reads, REWARDS, exploration=0.1) - without
    assert inverse.item() == pytest.approx(0.1 * (1 / (entropies + LEAST_ENTROPY)).sum().item() / 4, rel=1e-4)
    negative = ham.reinforce(reads, REWARDS, exploration=0.1, entropy="negative") - without
    assert negative.item() == pytest.approx(-0.1 * entropies.sum().item() / 4, rel=1e-4)


def test_who_did_not_take_part_counts_for_nothing(reads):
    ran = torch.tensor([[True, True], [True, False], [True, True], [True, False]])
    loss = ham.reinforce(reads, REWARDS, ran=ran, baseline="none", normalise=False)
    kept = REWARDS * ran
    returns = kept.flip(1).cumsum(1).flip(1) * ran
    assert loss.item() == pytest.approx(-(returns * log_prob(reads)).sum().item() / 4)


def test_rewards_are_never_differentiated(reads):
    rewards = REWARDS.clone().requires_grad_()
    ham.reinforce(reads, rewards).backward()
    assert rewards.grad is None


def test_soft_reads_cost_nothing():
    memory = SoftHAM(3, 4, 5)
    reads = [memory.attend(memory.init(torch.rand(4, 4, 3)), torch.rand(4, 4))] * 2
    assert ham.reinforce(reads, REWARDS, exploration=0.1).item() == 0


def test_its_expectation_is_the_gradient_of_what_is_earned():
    """On four leaves every path can be walked: the mean over all of them, by their chance, is exact."""
    torch.manual_seed(1)
    memory = ham.HAM(3, 4, 5).double()
    x, query = torch.rand(1, 4, 3).double(), torch.rand(1, 4).double()
    earned = torch.tensor([3.0, -1.0, 0.5, 2.0]).double()
    parameters = [*memory.search.parameters(), *memory.join.parameters()]
    state = memory.init(x.expand(4, -1, -1))
    read = memory.attend(state, query.expand(4, -1), leaf=torch.arange(4))
    chance = read.log_probs.sum(-1).exp()
    exact = torch.autograd.grad(-(chance * earned).sum(), parameters, retain_graph=True)
    # Each path as a batch of one, weighted by its chance.
    estimates = []
    for leaf in range(4):
        alone = memory.attend(memory.init(x), query, leaf=torch.tensor([leaf]))
        loss = ham.reinforce([alone], earned[leaf].view(1, 1), baseline="none", normalise=False)
        estimates.append(torch.autograd.grad(loss * chance[leaf].detach(), parameters))
    for mean, true in zip(map(sum, zip(*estimates, strict=True)), exact, strict=True):
        torch.testing.assert_close(mean, true)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"rewards": torch.zeros(4)}, r"rewards must have shape \(4, 2\)"),
        ({"rewards": torch.zeros(4, 3)}, r"rewards must have shape \(4, 2\)"),
        ({"ran": torch.ones(2, 4, dtype=torch.bool)}, r"ran must have shape \(4, 2\)"),
        ({"baseline": torch.zeros(4)}, r"the baseline must have shape \(4, 2\)"),
        ({"baseline": "learned"}, "a learned baseline is given as a tensor"),
        ({"baseline": "guess"}, "no baseline is named 'guess'"),
        ({"runs": 3}, "got 3 in a batch of 4"),
        ({"runs": 1}, "at least 2 runs"),
        ({"reads": []}, "at least one read"),
    ],
)
def test_what_does_not_fit_is_refused(unchecked, reads, given, said):
    with pytest.raises(InputError, match=said):
        ham.reinforce(**{"reads": reads, "rewards": REWARDS, **given})


def test_trees_of_different_sizes_are_refused(reads):
    memory = ham.HAM(3, 4, 5)
    other = memory.attend(memory.init(torch.rand(4, 8, 3)), torch.rand(4, 4))
    with pytest.raises(InputError, match="of the same size"):
        ham.reinforce([*reads, other], torch.zeros(4, 3))


def test_who_took_part_is_said_by_bools(unchecked, reads):
    with pytest.raises(InputError, match=r"ran must be bool, got torch\.int64"):
        ham.reinforce(reads, REWARDS, ran=torch.full((4, 2), 5))


def test_a_discount_that_was_changed_is_another(unchecked, reads):
    given = {"baseline": "none", "normalise": False}
    discount = torch.tensor(0.5)
    before = ham.reinforce(reads, REWARDS, discount=discount, **given)
    discount.zero_()
    after = ham.reinforce(reads, REWARDS, discount=discount, **given)
    assert after == ham.reinforce(reads, REWARDS, discount=0.0, **given) != before
