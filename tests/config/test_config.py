import contextlib
import dataclasses
import json
import re
import typing

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ham import tasks
from ham.config import (
    END,
    Architecture,
    Data,
    Objective,
    Optimiser,
    Options,
    Phase,
    Run,
    Schedule,
    Soft,
    paper,
)
from ham.config import changed as change
from ham.core.errors import InputError
from settings import run_with

SHARES = ("discount", "mix", "threshold", "averaging", "tall", "anywhere", "hard")


def values_of(cls, name):
    kind = typing.get_type_hints(cls)[name]
    if typing.get_origin(kind) is typing.Literal:
        return st.sampled_from(typing.get_args(kind))
    if name in ("start", "leaves", "tallest", "grid"):
        return st.integers(0, 10).map(lambda exponent: 1 << exponent)
    if name == "size":
        return st.integers(1, 1000)
    if name == "growth":
        return st.floats(1, 2, exclude_min=True)
    return {
        int: st.integers(1, 2) if name == "depth" else st.integers(1, 10**6),
        float: st.floats(0, 1 if name in SHARES else 1e30),
        bool: st.booleans(),
        str: st.text(),
    }[kind]


def of(cls):
    fields = {field.name: typing.get_type_hints(cls)[field.name] for field in dataclasses.fields(cls)}

    @st.composite
    def drawn(draw):
        made = cls()
        for name, kind in fields.items():
            # Some values are right only beside others.
            with contextlib.suppress(InputError):
                value = draw(of(kind) if dataclasses.is_dataclass(kind) else values_of(cls, name))
                made = dataclasses.replace(made, **{name: value})
        return made

    return drawn()


PARTS = {
    "model": Architecture,
    "data": Data,
    "objective": Objective,
    "optimiser": Optimiser,
    "schedule": Schedule,
    "opening": Phase,
    "main": Phase,
    "end": Phase,
}
OPTIONS = st.dictionaries(st.text(), st.floats(0, 1)).map(lambda values: Options(**values))


@settings(max_examples=30)
@given(
    st.text(),
    OPTIONS,
    st.fixed_dictionaries({name: of(cls) for name, cls in PARTS.items()}),
    st.integers(0, 2**63 - 1),
)
def test_a_run_survives_json(task, practice, parts, seed):
    run = Run(task, practice=practice, seed=seed)
    for name, part in parts.items():
        with contextlib.suppress(InputError):
            run = dataclasses.replace(run, **{name: part})
    text = run.to_json()
    assert Run.from_json(text, "here") == run
    assert Run.from_json(text, "here").to_json() == text
    assert hash(Run.from_json(text, "here")) == hash(run)


def test_settings_are_changed_together():
    run = change(Run("queue"), {"data.start": 64, "data.leaves": 128, "practice.cramped": 0.5, "seed": 3})
    assert (run.data.start, run.data.leaves, run.seed) == (64, 128, 3)
    assert run.practice == Options(cramped=0.5)
    assert change(run, {"data.start": 4, "data.leaves": 32, "seed": 0}) == Run("queue", practice=run.practice)


def test_what_a_part_leaves_out_is_its_default():
    run = Run.from_json('{"format": 2, "task": "sort", "end": {"learning_rate": 0.5}}', "here")
    assert run.end == dataclasses.replace(END, learning_rate=0.5)
    assert run.end.exploration == 0


def changed(path, value):
    data = json.loads(Run("reverse").to_json())
    *folders, name = path.split(".")
    inner = data
    for folder in folders:
        inner = inner[folder]
    inner[name] = value
    return json.dumps(data)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("main.lerning_rate", 1, "run.json: main has no field 'lerning_rate'; there are anywhere, "),
        ("colour", "red", "run.json has no field 'colour'"),
        ("data.batch", "50", "run.json: data: batch must be int, got '50'"),
        ("data.batch", 50.0, "batch must be int, got 50.0"),
        ("data.batch", True, "batch must be int, got True"),
        ("optimiser.clip", None, "clip must be float, got None"),
        ("optimiser.clip", 10**400, "clip must be float, got 1000"),
        ("model.soft", 1, "model: soft should be an object, got 1"),
        ("model", [], "run.json: model should be an object, got []"),
        (
            "model.kind",
            "transformer",
            "kind must be one of lstm, lstm+a, lstm+ham, dham, raw-ham, raw-dham, got 'transformer'",
        ),
        ("model.kind", ["lstm"], "kind must be one of"),
        ("objective.reward", "fame", "reward must be one of hamming, log-probability, got 'fame'"),
        ("task", 3, "task must be str, got 3"),
        ("format", 99, "has format 99; this version of ham reads formats 1 and 2"),
        ("seed", -1, "seed must lie in 0"),
        ("seed", 2**63, "seed must lie in 0"),
        ("model.depth", 3, "depth must be 1 or 2, got 3"),
        ("model.cells", 0, "cells must be at least 1, got 0"),
        ("data.leaves", 48, "leaves must be a power of two, got 48"),
        ("data.start", 64, "start 64 is larger than leaves 32"),
        ("data.runs", 3, "batch 64 is no multiple of runs 3"),
        ("objective.baseline", "leave-one-out", "needs runs of at least 2"),
        ("schedule.finish", -1, "finish must not be negative, got -1"),
        ("practice", [], "practice should be an object, got []"),
        ("practice.varied", "much", "practice: varied must be float, got 'much'"),
        ("objective.discount", 1.5, "discount must lie in 0"),
        ("model.join", "glue", "join must be one of rectified, normalised, highway, got 'glue'"),
        ("model.top", 0.5, "top must be 0 or at least 1, got 0.5"),
        ("model.grid", 48, "grid must be 0 or a power of two up to 1,048,576, got 48"),
        ("model.cell_bound", -1.0, "cell_bound must be finite and not negative, got -1.0"),
        ("main.tall", 1.5, "tall must lie in 0"),
        ("end.tall_from", -1, "end.tall_from must not be negative, got -1"),
        ("main.anywhere", 0.5, "main.anywhere needs a bound to start anywhere inside (model.cell_bound)"),
        ("end.anywhere", 0.5, "end.anywhere needs a bound to start anywhere inside (model.cell_bound)"),
        ("end.hard", -0.1, "hard must lie in 0"),
        ("data.tallest", 48, "tallest must be a power of two, got 48"),
        ("data.growth", 1.0, "growth must be above 1"),
        ("data.growth", 2.5, "at most 2"),
        ("main.learning_rate", -1.0, "learning_rate must be finite and not negative, got -1.0"),
        ("objective.rightward", -1.0, "rightward must be finite and not negative, got -1.0"),
        (
            "objective.rightward",
            1.0,
            "objective.rightward is for hard attention with several accesses a symbol",
        ),
        ("objective.pull", -1.0, "pull must be finite and not negative, got -1.0"),
        ("main.learning_rate", float("inf"), "Infinity is no number that can be used"),
        ("main.exploration", float("nan"), "NaN is no number that can be used"),
    ],
)
def test_what_is_wrong_is_named(path, value, message):
    with pytest.raises(InputError) as raised:
        Run.from_json(changed(path, value), "run.json")
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("kind", ["lstm", "lstm+a"])
def test_what_is_for_models_with_a_tree_is_refused_without(kind):
    with pytest.raises(InputError, match=r"objective\.pull is for models with a tree"):
        run_with("reverse", Architecture(kind), pull=1e-4)

    for phase in ("main", "end"):
        with pytest.raises(InputError, match=rf"{phase}\.tall is for models with a tree"):
            change(Run("reverse", Architecture(kind)), {f"{phase}.tall": 0.5})


@pytest.mark.parametrize(
    ("kind", "setting"),
    [
        *(("lstm", setting) for setting in ({"top": 2.0}, {"join": "highway"}, {"grid": 64})),
        ("lstm+a", {"cell_bound": 2.0}),
        ("raw-ham", {"cell_bound": 2.0}),
    ],
)
def test_bounds_of_what_a_model_has_not_are_refused(kind, setting):
    (name,) = setting
    with pytest.raises(InputError, match=rf"model\.{name} is not for {re.escape(kind)}"):
        Architecture(kind, **setting)


@pytest.mark.parametrize("kind", ["lstm", "lstm+a", "lstm+ham", "raw-ham"])
@pytest.mark.parametrize("name", ["tree_clip", "in_order"])
def test_what_is_for_soft_attention_is_refused_without(kind, name):
    with pytest.raises(
        InputError, match=rf"model\.soft is for models with soft attention, not for {re.escape(kind)}"
    ):
        Architecture(kind, soft=Soft(**{name: 1.0}))


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "3", '"run"', "{}", '{"format": 1}', "[" * 10**5])
def test_what_is_no_run_is_refused(text):
    with pytest.raises(InputError, match=r"run\.json"):
        Run.from_json(text, "run.json")


def test_whole_numbers_do_for_floats():
    assert Run.from_json(changed("optimiser.clip", 3), "here").optimiser.clip == 3.0


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("schedule.restart", 1, "restart must be bool, got 1"),
        ("schedule.epochs", 1.0, "epochs must be int, got 1.0"),
        ("schedule.patience", 10.5, "patience must be int, got 10.5"),
        ("schedule.trial", 0.5, "trial must be int, got 0.5"),
        ("main.tall_from", 1.5, "tall_from must be int, got 1.5"),
        ("objective.normalise", 0, "normalise must be bool, got 0"),
        ("objective.reward", "fame", "reward must be one of hamming, log-probability, got 'fame'"),
        ("data.mix", True, "mix must be float, got True"),
        ("data.batch", "64", "batch must be int, got '64'"),
        ("seed", True, "seed must be int, got True"),
        ("init", None, "init must be str, got None"),
        ("schedule", {"epochs": 1}, "schedule must be Schedule, got {'epochs': 1}"),
        ("practice.varied", "much", "practice: varied must be float, got 'much'"),
        ("practice", {5: "much"}, "practice: 5 must be float, got 'much'"),
    ],
)
def test_a_setting_of_another_type_is_refused(unchecked, name, value, message):
    with pytest.raises(InputError) as raised:
        change(Run("reverse"), {name: value})
    assert str(raised.value) == message


def test_numbers_of_numpy_become_pythons_own(unchecked):
    given = {"seed": np.int64(3), "main.learning_rate": np.float32(0.25), "data.mix": np.float64(0.5)}
    run = change(Run("reverse"), given)
    assert Run.from_json(run.to_json(), "here") == run
    assert [type(value) for value in (run.seed, run.main.learning_rate, run.data.mix)] == [int, float, float]


def test_the_papers_settings():
    run = paper(Run("sort"))
    assert (run.data.batch, run.schedule.epochs, run.data.batches) == (50, 100, 1000)
    # 200 validation batches of 50.
    assert (run.data.validation, run.optimiser.clip, run.data.leaves) == (10_000, 5.0, 32)
    assert run.objective == Objective(
        baseline="learned", reward="hamming", entropy="inverse", normalise=False
    )


@pytest.mark.parametrize(
    ("kind", "task", "message"),
    [("lstm+ham", "stack", "is online: it needs"), ("raw-ham", "sort", "is not online: it needs")],
)
def test_a_model_that_does_not_fit_the_task_is_refused(kind, task, message):
    with pytest.raises(InputError, match=message):
        Architecture(kind=kind).build(tasks.get(task))


@pytest.mark.parametrize("kind", ["lstm+ham", "lstm", "lstm+a"])
def test_widths_come_from_the_task(kind):
    task = tasks.get("search")
    model = Architecture(kind=kind, cells=5).build(task)
    assert model.output.out_features == task.outputs.width
    assert model.every == (2 if kind == "lstm+ham" else 1)
