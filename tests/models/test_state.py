"""A state on its way through a loop: detached, replaced in some rows, and refused once it is spent."""

import numpy as np
import pytest
import torch

import ham
from ham.core.errors import InputError
from ham.models.memory import State


@pytest.fixture
def memory():
    return ham.HAM(3, 4, 5)


def test_detached_it_has_the_same_content_and_no_history(memory):
    state = memory.init(torch.rand(2, 4, 3))
    assert state.tree.requires_grad
    detached = state.detach()
    assert not detached.tree.requires_grad
    assert torch.equal(detached.tree, state.tree)


def test_rows_are_replaced_and_gradients_go_where_they_belong(memory):
    one, other = (memory.init(torch.rand(3, 4, 3)) for _ in range(2))
    one.tree.retain_grad()
    other.tree.retain_grad()
    mixed = one.replaced(torch.tensor([True, False, True]), other)
    assert torch.equal(mixed.tree[[0, 2]], other.tree[[0, 2]])
    assert torch.equal(mixed.tree[1], one.tree[1])
    mixed.tree.sum().backward()
    assert one.tree.grad.flatten(1).abs().sum(1).tolist() == [0, 8 * 5, 0]
    assert other.tree.grad.flatten(1).abs().sum(1).tolist() == [8 * 5, 0, 8 * 5]
    query = torch.rand(3, 4)
    for state in (one, other, mixed):
        memory.update(state, memory.attend(state, query), query)


def test_what_does_not_fit_is_refused(unchecked, memory):
    state = memory.empty(3, 4)
    with pytest.raises(InputError, match=r"rows must be bool of shape \(3,\), got torch.float32 \(3,\)"):
        state.replaced(torch.ones(3), memory.empty(3, 4))
    with pytest.raises(InputError, match=r"rows must be bool of shape \(3,\)"):
        state.replaced(torch.ones(2, dtype=torch.bool), memory.empty(3, 4))
    with pytest.raises(InputError, match=r"tree of shape \(3, 8, 5\), got \(3, 16, 5\)"):
        state.replaced(torch.ones(3, dtype=torch.bool), memory.empty(3, 8))


def test_a_spent_state_is_refused(memory):
    state, query = memory.empty(2, 4), torch.rand(2, 4)
    memory.update(state, memory.attend(state, query), query)
    with pytest.raises(InputError, match="already updated"):
        state.detach()
    with pytest.raises(InputError, match="already updated"):
        state.replaced(torch.ones(2, dtype=torch.bool), memory.empty(2, 4))


def test_a_tree_with_an_odd_number_of_rows_is_refused(engine, unchecked, memory):
    with pytest.raises(InputError, match="even number of rows"):
        memory.attend(State(torch.rand(2, 9, 5)), torch.rand(2, 4))


def test_an_expanded_tree_is_refused(engine, unchecked, memory):
    tree = memory.init(torch.rand(1, 4, 3)).tree.detach().expand(3, -1, -1)
    with pytest.raises(InputError, match="contiguous"):
        memory.attend(State(tree), torch.rand(3, 4), leaf=torch.tensor([0, 1, 2]))


def test_what_lies_beyond_the_lengths_may_be_anything(memory):
    x, lengths = torch.rand(2, 4, 3), torch.tensor([2, 3])
    usual = memory.init(x, lengths)
    x[0, 2:], x[1, 3:] = torch.nan, torch.inf
    state = memory.init(x, lengths)
    assert torch.equal(state.tree, usual.tree)
    state.tree.sum().backward()
    assert all(torch.isfinite(parameter.grad).all() for parameter in memory.embed.parameters())


def test_whole_numbers_of_numpy_are_leaves(unchecked, memory):
    assert (
        memory.empty(2, np.int64(8)).leaves
        == memory.init(torch.rand(2, 3, 3), leaves=np.int64(8)).leaves
        == 8
    )
    with pytest.raises(InputError, match=r"leaves must be a whole number, got 8\.0"):
        memory.empty(2, 8.0)


def test_places_and_leaves_of_another_type_are_refused(unchecked, memory):
    x = torch.rand(2, 2, 3)
    with pytest.raises(InputError, match=r"places must be torch.int64, got torch.int32"):
        memory.init(x, places=torch.tensor([0, 2], dtype=torch.int32))
    with pytest.raises(InputError, match=r"places must have shape \(2,\), got \(0,\)"):
        memory.init(x, places=torch.empty(0, dtype=torch.int64))
    with pytest.raises(
        InputError, match=r"a leaf must be a whole number, such as torch\.int64, got torch\.float32"
    ):
        memory.attend(memory.init(x), torch.rand(2, 4), leaf=torch.tensor([0.0, 1.5]))
