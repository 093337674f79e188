"""What the first version wrote is read as the same run, and its searches draw the same trials."""

import json

import pytest

from ham.config import Options, Run, Soft
from ham.config.format_1 import NAMES
from ham.core.errors import InputError
from ham.reproduce.document import SEARCHES
from ham.runs import CONFIG, PRETRAINED, load, shipped
from ham.search.plan import SearchFolder
from ham.search.space import setting

FIRST = {
    "format": 1,
    "task": "queue",
    "model": {"kind": "raw-ham", "hidden": 40, "soft": True},
    "training": {
        "batch": 32,
        "epochs": 60,
        "finish": 30,
        "finish_learning_rate": 0.002,
        "finish_decay": 0.8,
        "finish_reinforce": 3,
        "learning_rate": 0.005,
        "varied": 0.0,
        "cramped": 0.5,
        "tree_clip": 10.0,
        "in_order": 0.8,
        "pull": 1e-4,
        "clip": 1,
        "restart": True,
    },
    "seed": 4,
}


def test_every_setting_finds_its_place():
    run = Run.from_json(json.dumps(FIRST), "here")
    assert (run.task, run.seed, run.model.kind, run.model.hidden) == ("queue", 4, "raw-dham", 40)
    assert run.model.soft == Soft(tree_clip=10.0, in_order=0.8)
    assert run.practice == Options(cramped=0.5)
    assert (run.data.batch, run.objective.pull, run.optimiser.clip) == (32, 1e-4, 1.0)
    assert (run.schedule.epochs, run.schedule.finish, run.schedule.restart) == (60, 30, True)
    assert (run.main.learning_rate, run.main.reinforce) == (0.005, 1.0)
    end = run.end
    assert (end.learning_rate, end.learning_rate_decay, end.reinforce, end.exploration) == (
        0.002,
        0.8,
        3.0,
        0.0,
    )
    assert Run.from_json(run.to_json(), "here") == run


def test_no_setting_was_lost():
    written = json.loads((PRETRAINED / "sort" / CONFIG).read_text())
    if written["format"] == 1:
        assert {f"training.{name}" for name in written["training"]} <= NAMES.keys()
    assert len(set(NAMES.values())) == len(NAMES)


@pytest.mark.parametrize(
    ("part", "value", "message"),
    [
        (
            "training",
            {"lerning_rate": 1},
            "run.json: training has no field 'lerning_rate'; there are anywhere",
        ),
        ("training", {"batch": "50"}, "run.json: data: batch must be int, got '50'"),
        ("training", [], "run.json: training should be an object, got []"),
        ("model", 3, "run.json: model should be an object, got 3"),
        ("model", {"soft": 1.5}, "model: soft must be bool, got 1.5"),
        ("model", {"kind": "lstm", "soft": True}, "model.soft is for models with a tree, not for lstm"),
        ("model", {"soft": 1}, "model: soft must be bool, got 1"),
        ("model", {"kind": [], "soft": True}, "model.soft is for models with a tree, not for []"),
        ("colour", "red", "run.json has no field 'colour'; there are model, seed, task, training"),
        ("data", 3, "run.json has no field 'data'"),
    ],
)
def test_what_is_wrong_is_named(part, value, message):
    with pytest.raises(InputError) as raised:
        Run.from_json(json.dumps({**FIRST, part: value}), "run.json")
    assert message in str(raised.value)


@pytest.mark.parametrize("name", shipped())
def test_shipped_models_agree_with_their_config(name):
    config = PRETRAINED / name / CONFIG
    assert load(name).run == Run.from_json(config.read_text(), str(config))


@pytest.mark.parametrize("folder", sorted(SEARCHES.iterdir()), ids=lambda folder: folder.name)
def test_recorded_searches_draw_the_trials_they_drew(folder):
    plan = SearchFolder(folder).plan()
    recorded = json.loads((folder / "results.json").read_text())["trials"]
    assert recorded
    for trial in recorded:
        run = plan.run(trial["number"])
        assert run.seed == trial["seed"]
        assert {name: setting(run, NAMES.get(name, name)) for name in trial["settings"]} == trial["settings"]
