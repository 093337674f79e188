"""Which engine serves which call, and what is said where none does."""

from __future__ import annotations

import logging

import pytest
import torch

import ham
from ham.core.errors import InputError
from ham.ops import reference, table
from ham.ops.native import library


def one_access(memory=None, **changes):
    memory = memory or ham.HAM(features=3, query=4, size=5)
    state = memory.init(torch.rand(2, 4, 3, **changes))
    return memory.attend(state, torch.zeros(2, 4, **changes), greedy=True)


@pytest.fixture
def no_engine(monkeypatch):
    monkeypatch.setattr(library, "_engine", None)
    monkeypatch.setattr(library, "_failure", "there is no compiler")
    monkeypatch.setattr(table, "_said", set())


def test_asking_for_native_where_it_cannot_be_had_is_an_error(no_engine):
    ham.set_backend("native")
    with pytest.raises(InputError, match="the native engine does not serve attend: there is no compiler"):
        one_access()
    with pytest.raises(InputError, match="cannot be had: there is no compiler"):
        table.announce()


def test_auto_falls_back_and_says_so_once(no_engine, caplog):
    ham.set_backend("auto")
    with caplog.at_level(logging.INFO, "ham"):
        one_access()
        one_access()
    assert [record.getMessage() for record in caplog.records] == [
        "attend runs on the reference: there is no compiler"
    ]


def test_native_is_for_float32(monkeypatch, caplog):
    monkeypatch.setattr(table, "_said", set())
    memory = ham.HAM(features=3, query=4, size=5).double()
    ham.set_backend("auto")
    assert one_access(memory, dtype=torch.float64).value.dtype == torch.float64
    assert caplog.messages == ["attend runs on the reference: tree is torch.float64, not torch.float32"]
    ham.set_backend("native")
    with pytest.raises(InputError, match="does not serve attend: tree is"):
        one_access(memory, dtype=torch.float64)


def test_native_says_that_a_batch_is_empty():
    memory = ham.HAM(features=3, query=4, size=5)
    state, query = memory.init(torch.rand(0, 4, 3)), torch.rand(0, 4)
    ham.set_backend("reference")
    read = memory.attend(state, query)
    ham.set_backend("native")
    with pytest.raises(InputError, match="does not serve attend: the batch is empty"):
        memory.attend(state, query)
    with pytest.raises(InputError, match="does not serve update: the batch is empty"):
        memory.update(state, read, query)


class OnlyAttends:
    """A second engine, which serves one operation and only small trees."""

    name = "toy"

    def __init__(self):
        self.served = 0

    def why_absent(self):
        return ""

    def why_not(self, operation, *call):
        if operation != "attend":
            return "it only attends"
        return "the tree is too tall for a toy" if call[0].shape[1] > 16 else ""

    def attend(self, *call):
        self.served += 1
        return reference.attend(*call)


def test_a_second_engine_is_one_more_entry(monkeypatch):
    """It is asked where those before it do not serve a call, and only for what it serves."""
    toy = OnlyAttends()
    monkeypatch.setattr(table, "_said", set())
    table.engines()
    table.register(toy)
    try:
        ham.set_backend("auto")
        memory = ham.HAM(features=3, query=4, size=5).double()
        for rows in (4, 8, 16):
            state = memory.init(torch.rand(2, rows, 3, dtype=torch.float64))
            query = torch.zeros(2, 4, dtype=torch.float64)
            memory.update(state, memory.attend(state, query), query)
        assert toy.served == 2
    finally:
        table.unregister(toy)
    one_access(memory, dtype=torch.float64)
    assert toy.served == 2


def test_every_operation_of_the_engine_is_in_the_table():
    from ham.ops.native.engine import NATIVE
    from ham.ops.native.operations import OPERATIONS

    assert table.OPERATIONS.keys() == {"attend", "update", *OPERATIONS}
    for operation in table.OPERATIONS:
        assert callable(getattr(NATIVE, operation))
    with pytest.raises(AttributeError, match="no operation 'nothing'"):
        NATIVE.nothing()
