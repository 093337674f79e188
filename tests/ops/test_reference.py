"""The definition's own parts: building a tree, and what choosing an engine says."""

import logging

import pytest
import torch

import ham
from ham import ops
from ham.core.errors import InputError
from ham.ops import reference


@pytest.mark.parametrize("leaves", [1, 2, 8])
def test_build_puts_every_node_where_the_heap_says(leaves):
    values = torch.arange(1.0, leaves + 1).reshape(1, leaves, 1)
    tree = reference.build(values, lambda both: both.sum(-1, keepdim=True))
    assert tree.shape == (1, 2 * leaves, 1)
    assert tree[0, 0] == 0
    assert torch.equal(tree[:, leaves:], values)
    for node in range(1, leaves):
        assert tree[0, node] == tree[0, 2 * node] + tree[0, 2 * node + 1]


def test_build_keeps_left_and_right_apart():
    tree = reference.build(torch.tensor([[[1.0], [2.0]]]), lambda both: both[..., :1] - 10 * both[..., 1:])
    assert tree[0, 1, 0] == 1 - 10 * 2


def test_a_backend_that_does_not_exist_is_refused(unchecked):
    with pytest.raises(InputError, match="must be one of auto, native, reference, got 'fast'"):
        ops.set_backend("fast")


def test_the_environment_chooses_where_the_program_does_not(monkeypatch):
    monkeypatch.setattr(ops, "_asked", None)
    monkeypatch.setenv("HAM_BACKEND", "reference")
    assert ops.backend() == "reference"
    monkeypatch.setenv("HAM_BACKEND", "")
    assert ops.backend() == "auto"
    monkeypatch.setenv("HAM_BACKEND", "quick")
    with pytest.raises(InputError, match="got 'quick'"):
        ops.backend()
    ham.set_backend("native")
    assert ops.backend() == "native"


def test_asking_for_native_where_it_cannot_be_had_is_an_error(monkeypatch):
    from ham.ops import native

    monkeypatch.setattr(native, "available", lambda: False)
    monkeypatch.setattr(native, "why_not", lambda: "there is no compiler")
    ham.set_backend("native")
    with pytest.raises(InputError, match="cannot be had: there is no compiler"):
        ops.native_for(torch.zeros(1))


def test_auto_falls_back_and_says_so_once(monkeypatch, caplog):
    from ham.ops import native

    monkeypatch.setattr(native, "available", lambda: False)
    monkeypatch.setattr(native, "why_not", lambda: "there is no compiler")
    monkeypatch.setattr(ops, "_announced", False)
    ham.set_backend("auto")
    with caplog.at_level(logging.INFO, "ham"):
        assert not ops.native_for(torch.zeros(1))
        assert not ops.native_for(torch.zeros(1))
    assert [record.getMessage() for record in caplog.records] == ["backend: reference (there is no compiler)"]


def test_native_is_for_float32():
    assert ops.native_for(torch.zeros(1)) is False
    ham.set_backend("auto")
    assert ops.native_for(torch.zeros(1, dtype=torch.float64)) is False


def test_native_refuses_other_types(engine):
    if engine != "native":
        pytest.skip("only the native engine is choosy")
    with pytest.raises(InputError, match="takes float32 tensors on the CPU"):
        ops.native_for(torch.zeros(1, dtype=torch.float64))
