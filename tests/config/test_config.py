import contextlib
import dataclasses
import json
import typing

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from ham import tasks
from ham.config import Architecture, Run, Training
from ham.core.errors import InputError

SHARES = ("discount", "mix", "threshold", "averaging", "varied", "cramped")


def values_of(cls, name):
    kind = typing.get_type_hints(cls)[name]
    if typing.get_origin(kind) is typing.Literal:
        return st.sampled_from(typing.get_args(kind))
    if name in ("start", "leaves"):
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
    names = [field.name for field in dataclasses.fields(cls)]

    @st.composite
    def drawn(draw):
        made = cls()
        for name in names:
            # Some values are right only beside others.
            with contextlib.suppress(InputError):
                made = dataclasses.replace(made, **{name: draw(values_of(cls, name))})
        return made

    return drawn()


@settings(max_examples=30)
@given(st.text(), of(Architecture), of(Training), st.integers(0, 2**63 - 1))
def test_a_run_survives_json(task, model, training, seed):
    if "ham" not in model.kind:
        training = dataclasses.replace(training, pull=0.0)
    if not model.soft:
        training = dataclasses.replace(training, tree_clip=0.0, in_order=0.0)
    try:
        run = Run(task, model, training, seed)
    except InputError:
        reject()  # more than any machine has
    text = run.to_json()
    assert Run.from_json(text, "here") == run
    assert Run.from_json(text, "here").to_json() == text


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
        ("training.lerning_rate", 1, "run.json: training has no field 'lerning_rate'; there are averaging, "),
        ("colour", "red", "run.json has no field 'colour'"),
        ("training.batch", "50", "run.json: training: batch must be int, got '50'"),
        ("training.batch", 50.0, "batch must be int, got 50.0"),
        ("training.batch", True, "batch must be int, got True"),
        ("training.clip", None, "clip must be float, got None"),
        ("training.clip", 10**400, "clip must be float, got 1000"),
        ("model.soft", 1, "soft must be bool, got 1"),
        ("model", [], "run.json: model should be an object, got []"),
        (
            "model.kind",
            "transformer",
            "kind must be one of lstm+ham, raw-ham, lstm, lstm+a, got 'transformer'",
        ),
        ("model.kind", ["lstm"], "kind must be one of"),
        ("training.reward", "fame", "reward must be one of hamming, log-probability, got 'fame'"),
        ("task", 3, "task must be str, got 3"),
        ("format", 99, "has format 99; this version of ham reads format 1"),
        ("seed", -1, "seed must lie in 0"),
        ("seed", 2**63, "seed must lie in 0"),
        ("model.depth", 3, "depth must be 1 or 2, got 3"),
        ("model.cells", 0, "cells must be at least 1, got 0"),
        ("training.leaves", 48, "leaves must be a power of two, got 48"),
        ("training.start", 64, "start 64 is larger than leaves 32"),
        ("training.runs", 3, "batch 64 is no multiple of runs 3"),
        ("training.baseline", "leave-one-out", "needs runs of at least 2"),
        ("training.finish", 101, "finish 101 must lie in 0"),
        ("training.discount", 1.5, "discount must lie in 0"),
        ("training.growth", 1.0, "growth must be above 1"),
        ("training.growth", 2.5, "at most 2"),
        ("training.learning_rate", -1.0, "learning_rate must be finite and not negative, got -1.0"),
        ("training.pull", -1.0, "pull must be finite and not negative, got -1.0"),
        ("training.learning_rate", float("inf"), "Infinity is no number that can be used"),
        ("training.exploration", float("nan"), "NaN is no number that can be used"),
    ],
)
def test_what_is_wrong_is_named(path, value, message):
    with pytest.raises(InputError) as raised:
        Run.from_json(changed(path, value), "run.json")
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("kind", ["lstm", "lstm+a"])
def test_what_is_for_models_with_a_tree_is_refused_without(kind):
    with pytest.raises(InputError, match=r"training\.pull is for models with a tree"):
        Run("reverse", Architecture(kind), Training(pull=1e-4))
    with pytest.raises(InputError, match=r"model\.soft is for models with a tree"):
        Architecture(kind, soft=True)


@pytest.mark.parametrize("name", ["tree_clip", "in_order"])
def test_what_is_for_soft_attention_is_refused_without(name):
    with pytest.raises(InputError, match=rf"training\.{name} is for models with soft attention"):
        Run("reverse", training=Training(**{name: 1.0}))


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "3", '"run"', "{}", '{"format": 1}', "[" * 10**5])
def test_what_is_no_run_is_refused(text):
    with pytest.raises(InputError, match=r"run\.json"):
        Run.from_json(text, "run.json")


def test_whole_numbers_do_for_floats():
    assert Run.from_json(changed("training.clip", 3), "here").training.clip == 3.0


def test_the_papers_settings():
    training = Training.paper()
    assert (training.batch, training.epochs, training.batches) == (50, 100, 1000)
    # 200 validation batches of 50.
    assert (training.validation, training.clip, training.leaves) == (10_000, 5.0, 32)
    assert (training.baseline, training.reward, training.entropy) == ("learned", "hamming", "inverse")


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
    assert model.output.out_features == task.bits
    assert model.every == (2 if kind == "lstm+ham" else 1)
