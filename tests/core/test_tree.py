import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ham.core.errors import InputError
from ham.core.tree import MOST_LEAVES, capacity_for, depth_of, leaf_of, path_to, turns_to


@pytest.mark.parametrize("leaves", [0, -4, 3, 48, 1023])
def test_only_powers_of_two_have_a_depth(leaves):
    with pytest.raises(InputError, match=f"power of two, got {leaves}"):
        depth_of(leaves)


def test_the_error_says_what_to_do():
    with pytest.raises(InputError, match=r"ham\.core\.tree\.capacity_for\(48\) = 64"):
        depth_of(48)
    with pytest.raises(InputError, match=r"at most 1,073,741,824, got 4,611,686,018,427,387,904"):
        depth_of(1 << 62)


@given(st.integers(1, MOST_LEAVES))
def test_capacity_is_the_smallest_power_of_two_that_holds_the_items(length):
    capacity = capacity_for(length)
    assert capacity >= length
    assert capacity // 2 < length
    assert 1 << depth_of(capacity) == capacity


def test_the_path_of_the_papers_figure():
    # Figure 3 reads node 13 of a tree with 8 leaves, which is leaf 5, through nodes 1, 3 and 6.
    leaf = torch.tensor([5])
    assert path_to(leaf, 8).tolist() == [[1, 3, 6, 13]]
    assert turns_to(leaf, 8).tolist() == [[True, False, True]]


@given(st.integers(0, 12), st.data())
def test_paths_turns_and_leaves_agree(depth, data):
    leaves = 1 << depth
    leaf = torch.tensor(data.draw(st.lists(st.integers(0, leaves - 1), min_size=1, max_size=5)))
    path, turns = path_to(leaf, leaves), turns_to(leaf, leaves)
    assert path.shape == (len(leaf), depth + 1)
    assert (path[:, 0] == 1).all()
    assert (path[:, -1] == leaf + leaves).all()
    assert (path[:, 1:] == 2 * path[:, :-1] + turns).all()
    assert torch.equal(leaf_of(turns), leaf)
