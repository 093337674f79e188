"""The definition's own parts: building a tree, and what choosing an engine says."""

import pytest
import torch

import ham
from ham import ops
from ham.core.errors import InputError
from ham.ops import reference, table


@pytest.mark.parametrize("leaves", [1, 2, 8])
def test_build_puts_every_node_where_the_heap_says(leaves):
    values = torch.arange(1.0, leaves + 1).reshape(1, leaves, 1)
    tree, _ = reference.build(values, lambda both: both.sum(-1, keepdim=True))
    assert tree.shape == (1, 2 * leaves, 1)
    assert tree[0, 0] == 0
    assert torch.equal(tree[:, leaves:], values)
    for node in range(1, leaves):
        assert tree[0, node] == tree[0, 2 * node] + tree[0, 2 * node + 1]


def test_build_keeps_left_and_right_apart():
    tree, _ = reference.build(torch.tensor([[[1.0], [2.0]]]), lambda both: both[..., :1] - 10 * both[..., 1:])
    assert tree[0, 1, 0] == 1 - 10 * 2


def test_a_backend_that_does_not_exist_is_refused(unchecked):
    with pytest.raises(InputError, match="must be one of auto, native, reference, got 'fast'"):
        ops.set_backend("fast")


def test_the_environment_chooses_where_the_program_does_not(monkeypatch):
    monkeypatch.setattr(table, "_asked", None)
    monkeypatch.setenv("HAM_BACKEND", "reference")
    assert ops.backend() == "reference"
    monkeypatch.setenv("HAM_BACKEND", "")
    assert ops.backend() == "auto"
    monkeypatch.setenv("HAM_BACKEND", "quick")
    with pytest.raises(InputError, match="got 'quick'"):
        ops.backend()
    ham.set_backend("native")
    assert ops.backend() == "native"
