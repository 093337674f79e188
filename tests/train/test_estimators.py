import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ham.core.errors import InputError
from ham.train import estimators
from ham.train.estimators import (
    Estimate,
    Outcomes,
    discounted_returns,
    estimated,
    leave_one_out,
    normalised,
)


def test_discounted_returns_by_hand():
    rewards = torch.tensor([[1.0, 2.0, 4.0]])
    # 1 + 2/2 + 4/4, then 2 + 4/2, then 4.
    assert discounted_returns(rewards, 0.5, 1).tolist() == [[3.0, 4.0, 4.0]]
    assert discounted_returns(rewards, 1.0, 1).tolist() == [[7.0, 6.0, 4.0]]
    assert discounted_returns(rewards, 0.0, 1).tolist() == [[1.0, 2.0, 4.0]]


def test_discounts_are_per_timestep_where_symbols_take_two():
    # Symbols are given at the second and the fourth timestep:
    # 1/2 + 2/8, then 1 + 2/4, then 2/2, then 2.
    assert discounted_returns(torch.tensor([[1.0, 2.0]]), 0.5, 2).tolist() == [[0.75, 1.5, 1.0, 2.0]]


@given(st.integers(1, 6), st.integers(1, 3), st.floats(0, 1))
def test_returns_follow_their_recursion(symbols, every, discount):
    rewards = torch.arange(1.0, symbols + 1, dtype=torch.float64)[None] ** 2
    returns = discounted_returns(rewards, discount, every)[0]
    later = 0.0
    for t in reversed(range(symbols * every)):
        given_now = rewards[0, t // every].item() if t % every == every - 1 else 0.0
        later = given_now + discount * later
        assert returns[t].item() == pytest.approx(later)


def test_a_return_knows_only_what_comes_after():
    rewards = torch.rand(1, 4)
    changed = rewards.clone()
    changed[0, 1] += 1
    same = discounted_returns(rewards, 0.9, 2) == discounted_returns(changed, 0.9, 2)
    assert same.tolist() == [[False] * 4 + [True] * 4]


def test_leave_one_out_is_the_mean_of_the_others():
    returns = torch.tensor([[1.0, 10.0], [2.0, 20.0], [6.0, 0.0], [4.0, 4.0], [4.0, 4.0], [4.0, 4.0]])
    expected = [[4.0, 10.0], [3.5, 5.0], [1.5, 15.0], [4.0, 4.0], [4.0, 4.0], [4.0, 4.0]]
    assert leave_one_out(returns, 3).tolist() == expected


def test_normalised_by_hand():
    # Timestep 0: root mean square of 3 and 4 is √12.5. Timestep 1: only the first example ran. Timestep 2:
    # all zero stays zero. Timestep 3: nobody ran.
    advantages = torch.tensor([[3.0, -2.0, 0.0, 0.0], [4.0, 77.0, 0.0, 0.0]])
    ran = torch.tensor([[1.0, 1.0, 1.0, 0.0], [1.0, 0.0, 1.0, 0.0]])
    result = normalised(advantages, ran)
    root = 12.5**0.5
    torch.testing.assert_close(result[:, 0], torch.tensor([3 / root, 4 / root]))
    assert result[0, 1].item() == -1
    assert result[:, 2:].tolist() == [[0.0, 0.0], [0.0, 0.0]]


RETURNS = torch.tensor([[1.0, 2.0], [3.0, 0.0], [5.0, 4.0], [7.0, 0.0]])
RAN = torch.tensor([[1.0, 1.0], [1.0, 0.0], [1.0, 1.0], [1.0, 0.0]])


def outcomes():
    return Outcomes(RETURNS, RAN, 2, lambda: torch.full_like(RETURNS, 2.0, requires_grad=True))


@pytest.mark.parametrize(
    ("name", "advantages", "loss"),
    [
        ("none", RETURNS.tolist(), None),
        ("leave-one-out", [[-2.0, 2.0], [2.0, -2.0], [-2.0, 4.0], [2.0, -4.0]], None),
        # Errors 1, 0, 1, 3, 2 and 5, of those that ran.
        ("learned", (RETURNS - 2).tolist(), (1 + 0 + 1 + 9 + 4 + 25) / 6),
    ],
)
def test_every_estimator_by_hand(name, advantages, loss):
    found = estimated(estimators.get(name), outcomes())
    assert found.advantages.tolist() == advantages
    assert not found.advantages.requires_grad
    assert (found.loss is None) if loss is None else (found.loss.item() == pytest.approx(loss))


def test_an_estimator_is_entered_by_name_once(monkeypatch):
    monkeypatch.setattr(estimators, "_known", dict(estimators._known))

    @estimators.estimator("halved")
    def halved(outcomes):
        return Estimate(outcomes.returns / 2)

    assert estimators.get("halved") is halved
    with pytest.raises(InputError, match="two estimators are named 'halved'"):
        estimators.estimator("halved")(halved)


def test_what_is_no_estimator_is_refused(tmp_path):
    with pytest.raises(
        InputError, match="no baseline is named 'mean'; there are learned, leave-one-out, none"
    ):
        estimators.get("mean")
    with pytest.raises(InputError, match=r"every timestep, \(4, 2\), got \(4,\)"):
        estimated(lambda outcomes: outcomes.returns[:, 0], outcomes())
    with pytest.raises(InputError, match=r"every timestep, \(4, 2\), got NoneType"):
        estimated(lambda outcomes: None, outcomes())
    own = tmp_path / "own.py"
    own.write_text("def mine(outcomes):\n    return outcomes.returns\nother = 3\n")
    assert estimators.from_file(f"{own}:mine")(outcomes()) is RETURNS
    with pytest.raises(InputError, match=r"own.py has no function other"):
        estimators.from_file(f"{own}:other")
    with pytest.raises(InputError, match=r"there is no file absent.py to take the baseline mine from"):
        estimators.from_file("absent.py:mine")
