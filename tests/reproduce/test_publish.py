"""Runs become shipped models: which of them, and what is kept of the others."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from ham.core.errors import InputError
from ham.reproduce import acceptance, publish
from ham.runs import CHECKPOINT, METRICS, RunFolder, load
from ham.train import evaluate
from ham.train.loop import train
from settings import run_with

SMALL = {"start": 4, "leaves": 4, "batches": 2, "epochs": 1, "validation": 4, "batch": 4}


@pytest.fixture
def pretrained(tmp_path, monkeypatch):
    monkeypatch.setattr(publish, "PRETRAINED", tmp_path / "pretrained")
    monkeypatch.setattr(publish, "FAR", 8)
    monkeypatch.setattr(publish, "FAR_ASKED", 1)
    monkeypatch.setattr(publish, "acceptance", accepted)
    return tmp_path / "pretrained"


WRONG: dict[int, int] = {}
"""How many fresh short inputs each seed of a test is said to err on."""


def accepted(model):
    return replace(acceptance.acceptance(model, asked=4), wrong=WRONG[model.run.seed])


def trained(folder, seed, wrong, **changes):
    """The folder of a short run that is said to err on so many fresh short inputs."""
    WRONG[seed] = wrong
    run, settings = (
        RunFolder(folder / f"{seed}-{wrong}"),
        run_with("reverse", seed=seed, **{**SMALL, **changes}),
    )
    run.begin(settings)
    for _ in train(settings, run):
        pass
    return run.path


def seeds(of):
    return {its["seed"]: its["shipped"] for its in json.loads((of / publish.SEEDS).read_text())}


def test_the_run_that_errs_least_on_fresh_short_inputs_is_shipped(tmp_path, pretrained):
    runs = [trained(tmp_path, seed, wrong) for seed, wrong in ((0, 3), (1, 1), (2, 2))]
    target = publish.publish("tiny", runs, examples=2)
    assert target == pretrained / "tiny"
    assert seeds(target) == {0: False, 1: True, 2: False}
    for file in (CHECKPOINT, METRICS):
        assert (target / file).read_bytes() == (runs[1] / file).read_bytes()
    assert (
        "seed 1, of 3 the one that errs least on 20,000 fresh short inputs: 1 wrong"
        in (target / publish.CARD).read_text()
    )


def test_seeds_that_were_published_before_stay(tmp_path, pretrained):
    publish.publish("tiny", [trained(tmp_path, 5, 2)], examples=2)
    target = publish.publish("tiny", [trained(tmp_path, 3, 3)], examples=2)
    assert seeds(target) == {3: False, 5: True}
    assert RunFolder(target).run().seed == 5
    publish.publish("tiny", [trained(tmp_path, 4, 1)], examples=2)
    assert seeds(target) == {3: False, 4: True, 5: False}
    assert RunFolder(target).run().seed == 4


def test_seeds_of_another_recipe_do_not_stay(tmp_path, pretrained):
    publish.publish("tiny", [trained(tmp_path, 0, 1)], examples=2)
    target = publish.publish("tiny", [trained(tmp_path, 1, 2, batches=3)], examples=2)
    assert seeds(target) == {1: True}


def test_a_seed_comes_once_and_recipes_are_not_mixed(tmp_path, pretrained):
    with pytest.raises(InputError, match="have seeds 0, 0: each may come once"):
        publish.publish("tiny", [trained(tmp_path, 0, 1), trained(tmp_path, 0, 2)])
    with pytest.raises(InputError, match="of 2 different recipes"):
        publish.publish("tiny", [trained(tmp_path, 1, 1), trained(tmp_path, 2, 2, batches=3)])


def test_fresh_short_inputs_are_the_same_for_all_seeds_and_as_hard_as_is_practised(tmp_path, monkeypatch):
    asked, evaluate_all = [], evaluate.evaluate

    def noting(model, task, **named):
        asked.append((named["examples"], named["lengths"], named["conditions"].tall))
        return evaluate_all(model, task, **named)

    monkeypatch.setattr(acceptance, "evaluate", noting)
    plain, hard = (load(trained(tmp_path, seed, 0, tall=tall)) for seed, tall in ((0, 0.0), (1, 0.5)))
    assert acceptance.acceptance(plain, asked=5).examples == 5
    assert acceptance.acceptance(hard, asked=5).examples == 5
    assert asked == [(5, (1, 4), 0.0), (2, (1, 4), 0.0), (3, (1, 4), 0.5)]
    again = acceptance.acceptance(plain, asked=5)
    assert again == acceptance.acceptance(plain, asked=5), "the examples are the same every time"


def test_of_several_runs_the_one_that_errs_least_is_used_and_of_equals_the_surest(tmp_path, monkeypatch):
    scores = {"a": (2, 0.1), "b": (1, 0.3), "c": (1, 0.2)}
    paths = [tmp_path / name for name in scores]
    monkeypatch.setattr(acceptance, "load", lambda path: path.name)
    monkeypatch.setattr(
        acceptance, "acceptance", lambda name: evaluate.Score(9, scores[name][0], 9, 0, scores[name][1])
    )
    assert acceptance.best_of(paths) == tmp_path / "c"
    assert acceptance.best_of(paths[:1]) == tmp_path / "a"
