"""A state says where it was left; to go on elsewhere is said to change bits."""

from __future__ import annotations

import json
from contextlib import closing

import pytest
import torch

import ham
from ham.config import Architecture
from ham.ops import native
from ham.runs import STATE, RunFolder, read_tensors
from ham.runs import folder as folders
from ham.runs.machine import difference, machine
from ham.train.loop import Epoch, train
from settings import run_with

TINY = Architecture(cells=3, size=3, hidden=3)
RUN = run_with("reverse", TINY, batch=2, epochs=3, batches=2, validation=2, start=2, leaves=2)


@pytest.fixture
def stopped(tmp_path):
    """A run after its first epoch."""
    folder = RunFolder(tmp_path / "run")
    folder.begin(RUN)
    with closing(train(RUN, folder)) as events:
        next(event for event in events if isinstance(event, Epoch))
    return folder


def test_a_state_records_engine_and_cpu(stopped):
    _, header = read_tensors(stopped.path / STATE)
    found = json.loads(header["machine"])
    assert found == machine()
    assert found == {
        "engine": "reference",
        "threads": "1",
        "torch": torch.__version__,
        "cpu": torch.backends.cpu.get_cpu_capability(),
    }


@pytest.mark.skipif(not native.available(), reason=native.why_not() or "available")
def test_the_native_engine_is_known_by_its_build():
    ham.set_backend("native")
    assert machine()["engine"] == native.build_info().file.stem
    assert "threads" not in machine()


def test_gone_on_with_where_it_was_it_says_nothing(stopped, caplog):
    list(train(RUN, stopped))
    assert not caplog.text


def test_gone_on_with_elsewhere_it_says_so_once(stopped, caplog, monkeypatch):
    there = {"engine": "engine-0123", "torch": "2.10.0", "cpu": "AVX2\x1b[31m"}
    monkeypatch.setattr(folders, "machine", lambda: there)
    tensors, progress = stopped.read_state()
    stopped.write_state(stopped.run(), tensors, progress)
    monkeypatch.undo()
    list(train(RUN, stopped))
    (record,) = caplog.records
    said = record.getMessage()
    assert said.startswith(
        "the bits may differ from those of a run that was never stopped: engine engine-0123, "
    )
    assert "cpu AVX2" in said
    assert said.endswith(f"cpu {torch.backends.cpu.get_cpu_capability()} here")
    assert said.isprintable()


@pytest.mark.parametrize("there", [None, [], "x", 3, {}])
def test_a_state_that_does_not_say_is_gone_on_with(there):
    assert difference(there) == ""
