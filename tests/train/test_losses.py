"""Every term of the objective against numbers worked out by hand."""

import math

import pytest
import torch

from ham.ops import entropy_of, log_prob_of
from ham.ops.episode import LEAST_ENTROPY, exploration_of
from ham.tasks import Bits
from ham.train import losses
from ham.train.objective import Examples

LN3 = math.log(3)
BITS = Bits(2)


def test_log_probabilities_of_symbols():
    # σ(ln 3) = 3/4: two bits right with 3/4 each; one right with 3/4 and one wrong with 1/4; not counted.
    outputs = torch.tensor([[[LN3, -LN3], [LN3, LN3], [5.0, 5.0]]])
    targets = torch.tensor([[[1.0, 0.0], [1.0, 0.0], [0.0, 0.0]]])
    counted = torch.tensor([[True, True, False]])
    nothing = torch.zeros(1, 1, 1), torch.tensor([1])
    log_prob = Examples(*nothing, targets, counted, torch.tensor([2]), BITS).log_prob(outputs)
    expected = [2 * math.log(3 / 4), math.log(3 / 4) + math.log(1 / 4), 0.0]
    torch.testing.assert_close(log_prob, torch.tensor([expected]))


def test_a_symbol_counts_as_much_as_those_before_it_are_right():
    # With rate 1 the weight is the probability of all symbols before: 1, 1/2, 1/2 · 1/4.
    log_prob = torch.tensor([[0.5, 0.25, 0.1]]).log().requires_grad_()
    weights = losses.weights_in_order(log_prob, 1.0)
    torch.testing.assert_close(weights, torch.tensor([[1.0, 0.5, 0.125]]))
    assert not weights.requires_grad, "nothing is gained by being wrong early"
    torch.testing.assert_close(losses.weights_in_order(log_prob, 2.0), weights.square())
    assert losses.weights_in_order(log_prob, 0.0).tolist() == [[1.0, 1.0, 1.0]]


def test_the_hamming_reward_is_the_share_of_right_bits():
    outputs = torch.tensor([[[1.0, -1.0, 2.0, 0.1], [1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0]]])
    targets = torch.tensor([[[1.0, 0.0, 0.0, 1.0], [0.0, 0.0, 0.0, 1.0], [1.0, 1.0, 1.0, 1.0]]])
    hits = losses.symbol_hits(BITS.hits(outputs, targets), torch.tensor([[1.0, 1.0, 0.0]]))
    assert hits.tolist() == [[0.75, 0.25, 0.0]]


def test_a_bit_at_one_half_is_taken_for_zero_everywhere():
    outputs, counted = torch.zeros(1, 1, 2), torch.tensor([[True]])
    targets = torch.tensor([[[0.0, 1.0]]])
    assert losses.symbol_hits(BITS.hits(outputs, targets), counted.float()).tolist() == [[0.5]]
    assert losses.wrong_parts(BITS.hits(outputs, targets), counted).sum() == 1


def test_accesses_that_move_right_by_hand():
    leaves = torch.tensor([[3, 5, 6, 6, 7, 2], [0, 1, 2, 3, -1, -1]])
    assert losses.moved_right(leaves, 1).sum() == 0, "the first access of a symbol has none before it"
    assert losses.moved_right(leaves, 2).tolist() == [
        [False, True, False, False, False, False],
        [False, True, False, True, False, False],
    ]
    assert losses.moved_right(leaves, 3).tolist()[0] == [False, True, True, False, True, False]


def test_reinforce_by_hand():
    log_probs = torch.tensor([[[-1.0, -2.0], [-3.0, -4.0]], [[-5.0, -6.0], [-7.0, -8.0]]], requires_grad=True)
    advantages = torch.tensor([[1.0, -1.0], [2.0, 100.0]], requires_grad=True)
    ran = torch.tensor([[1.0, 1.0], [1.0, 0.0]])
    loss = losses.reinforce_loss(log_probs, advantages, ran)
    # −[(−3)·1 + (−7)·(−1) + (−11)·2] / 2
    assert loss.item() == 9
    loss.backward()
    assert advantages.grad is None, "the advantage is a weight, not something to learn from"
    assert log_probs.grad.tolist() == [[[-0.5, -0.5], [0.5, 0.5]], [[-1.0, -1.0], [0.0, 0.0]]]


def test_entropy_terms_by_hand():
    entropies = torch.tensor([[[0.5, 0.25], [0.1, 0.1]]])
    ran = torch.tensor([[1.0, 0.0]])
    assert losses.exploration_loss(exploration_of(entropies, "negative"), ran).item() == -0.75
    assert losses.exploration_loss(exploration_of(entropies, "positive"), ran).item() == 0.75
    inverse = 1 / (0.5 + LEAST_ENTROPY) + 1 / (0.25 + LEAST_ENTROPY)
    torch.testing.assert_close(
        losses.exploration_loss(exploration_of(entropies, "inverse"), ran), torch.tensor(inverse)
    )
    assert abs(inverse - (2 + 4)) < 0.03, "the small constant leaves ordinary entropies as they are"


@pytest.mark.parametrize("kind", ["inverse", "negative", "positive"])
@pytest.mark.parametrize("logit", [-1e4, -30.0, 0.0, 30.0, 1e4])
def test_entropy_terms_are_finite_however_sure_a_decision_is(kind, logit):
    logits = torch.full((1, 1, 1), logit, requires_grad=True)
    loss = losses.exploration_loss(exploration_of(entropy_of(logits), kind), torch.ones(1, 1))
    loss.backward()
    assert torch.isfinite(loss)
    assert torch.isfinite(logits.grad).all()
    # Descending the term pulls a decision back towards one half, or away from it.
    assert logits.grad.item() * logit * (-1 if kind == "positive" else 1) >= 0


def test_entropies_and_log_probabilities_by_hand():
    p = torch.tensor([0.5, 0.25, 0.9, 0.999], dtype=torch.float64)
    logits = torch.log(p) - torch.log(1 - p)
    torch.testing.assert_close(entropy_of(logits), -p * p.log() - (1 - p) * (1 - p).log())
    right, left = torch.ones(4, dtype=torch.bool), torch.zeros(4, dtype=torch.bool)
    torch.testing.assert_close(log_prob_of(logits, right), p.log())
    torch.testing.assert_close(log_prob_of(logits, left), (1 - p).log())
    assert log_prob_of(torch.tensor([-1e4]), torch.tensor([True])).item() == -1e4


def test_the_baselines_error_is_a_mean_over_timesteps():
    predictions = torch.tensor([[1.0, 2.0], [3.0, 50.0]], requires_grad=True)
    returns = torch.tensor([[0.0, 4.0], [3.0, 0.0]], requires_grad=True)
    loss = losses.baseline_loss(predictions, returns, torch.tensor([[1.0, 1.0], [1.0, 0.0]]))
    # (1 + 4 + 0) / 3
    torch.testing.assert_close(loss.detach(), torch.tensor(5 / 3))
    loss.backward()
    assert returns.grad is None
    torch.testing.assert_close(predictions.grad, torch.tensor([[2 / 3, -4 / 3], [0.0, 0.0]]))


def test_one_wrong_bit_makes_a_sequence_wrong_unless_it_comes_after_the_end():
    targets = torch.tensor([[[1.0, 0.0], [0.0, 1.0]]]).expand(4, -1, -1)
    outputs = (targets * 2 - 1).clone()
    outputs[1, 0, 1] = 0.1
    outputs[2, 1, 1] = -0.1
    outputs[3, 1] = torch.tensor([9.0, -9.0])
    counted = torch.tensor([[True, True], [True, True], [True, True], [True, False]])
    wrong = losses.wrong_parts(BITS.hits(outputs, targets), counted)
    assert losses.whole_sequences_wrong(wrong).tolist() == [False, True, True, False]
    assert wrong.sum() == 2
