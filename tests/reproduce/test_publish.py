"""Runs become shipped models: which of them, and what is kept of the others."""

from __future__ import annotations

import json

import pytest

from ham.core.errors import InputError
from ham.reproduce import publish
from ham.runs import CHECKPOINT, METRICS, RunFolder
from ham.train.loop import train
from settings import run_with

SMALL = {"start": 4, "leaves": 4, "batches": 2, "epochs": 1, "validation": 4, "batch": 4}


@pytest.fixture
def pretrained(tmp_path, monkeypatch):
    monkeypatch.setattr(publish, "PRETRAINED", tmp_path / "pretrained")
    monkeypatch.setattr(publish, "FAR", 8)
    monkeypatch.setattr(publish, "FAR_ASKED", 1)
    return tmp_path / "pretrained"


def trained(folder, seed, loss, **changes):
    """The folder of a short run that says it validated with this loss."""
    run, settings = (
        RunFolder(folder / f"{seed}-{loss}"),
        run_with("reverse", seed=seed, **{**SMALL, **changes}),
    )
    run.begin(settings)
    for _ in train(settings, run):
        pass
    (record,) = run.metrics()
    run.write_metrics([{**record, "error": 0.0, "loss": loss}])
    return run.path


def seeds(of):
    return {its["seed"]: its["shipped"] for its in json.loads((of / publish.SEEDS).read_text())}


def test_the_run_that_validated_best_is_shipped(tmp_path, pretrained):
    runs = [trained(tmp_path, seed, loss) for seed, loss in ((0, 0.3), (1, 0.1), (2, 0.2))]
    target = publish.publish("tiny", runs, examples=2)
    assert target == pretrained / "tiny"
    assert seeds(target) == {0: False, 1: True, 2: False}
    for file in (CHECKPOINT, METRICS):
        assert (target / file).read_bytes() == (runs[1] / file).read_bytes()
    assert "seed 1, the best by validation of 3" in (target / publish.CARD).read_text()


def test_seeds_that_were_published_before_stay(tmp_path, pretrained):
    publish.publish("tiny", [trained(tmp_path, 5, 0.2)], examples=2)
    target = publish.publish("tiny", [trained(tmp_path, 3, 0.3)], examples=2)
    assert seeds(target) == {3: False, 5: True}
    assert RunFolder(target).run().seed == 5
    publish.publish("tiny", [trained(tmp_path, 4, 0.1)], examples=2)
    assert seeds(target) == {3: False, 4: True, 5: False}
    assert RunFolder(target).run().seed == 4


def test_seeds_of_another_recipe_do_not_stay(tmp_path, pretrained):
    publish.publish("tiny", [trained(tmp_path, 0, 0.1)], examples=2)
    target = publish.publish("tiny", [trained(tmp_path, 1, 0.2, batches=3)], examples=2)
    assert seeds(target) == {1: True}


def test_a_seed_comes_once_and_recipes_are_not_mixed(tmp_path, pretrained):
    with pytest.raises(InputError, match="have seeds 0, 0: each may come once"):
        publish.publish("tiny", [trained(tmp_path, 0, 0.1), trained(tmp_path, 0, 0.2)])
    with pytest.raises(InputError, match="of 2 different recipes"):
        publish.publish("tiny", [trained(tmp_path, 1, 0.1), trained(tmp_path, 2, 0.2, batches=3)])
