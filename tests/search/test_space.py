"""What is drawn for a trial: the same wherever it runs, inside its bounds, refused if it cannot be."""

import json
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ham import recipes, tasks
from ham.config import Architecture, Run
from ham.core.errors import InputError
from ham.search.space import (
    Choice,
    Range,
    default_space,
    draw,
    from_file,
    from_flags,
    from_json,
    merged,
    setting,
    short,
    with_settings,
)

SORT = tasks.get("sort")
RUN = Run("sort")


def test_a_trial_depends_on_the_search_seed_and_its_number_alone():
    space = default_space(RUN, SORT)
    assert draw(RUN, space, 5, 3) == draw(RUN, space, 5, 3)
    drawn = {draw(RUN, space, seed, number) for seed in range(4) for number in range(4)}
    assert len(drawn) == 16
    assert len({run.seed for run in drawn}) == 16


def test_to_fix_or_add_a_setting_leaves_the_other_draws_as_they_are():
    space = default_space(RUN, SORT)
    fewer = {name: values for name, values in reversed(space.items()) if name != "data.mix"}
    more = {**space, "optimiser.clip": Range(1.0, 9.0)}
    run = draw(RUN, space, 0, 7)
    for other in (draw(RUN, fewer, 0, 7), draw(RUN, more, 0, 7)):
        assert all(setting(other, name) == setting(run, name) for name in fewer)
        assert other.seed == run.seed


@given(st.integers(0, 2**32 - 1), st.integers(0, 10**5))
def test_what_is_drawn_lies_in_its_bounds(seed, number):
    base, space = merged(
        RUN, SORT, {"schedule.patience": {"log": [1, 1000]}, "model.cells": {"uniform": [3, 5]}}, ""
    )
    run = draw(base, space, seed, number)
    for name, values in space.items():
        value = setting(run, name)
        if isinstance(values, Range):
            assert values.low <= value <= values.high
            assert type(value) is (int if values.whole else float)
        else:
            assert value in values.options


def test_every_bound_is_reached():
    drawn = {
        draw(RUN, {"model.cells": Range(3, 5, whole=True)}, 0, number).model.cells for number in range(50)
    }
    assert drawn == {3, 4, 5}


@pytest.mark.parametrize(
    ("task", "model", "there", "absent"),
    [
        ("sort", Architecture(), ["model.every", "objective.discount", "schedule.finish"], ["model.cells"]),
        ("search", Architecture(), ["data.runs"], ["model.every"]),
        ("stack", Architecture(kind="raw-ham"), ["main.reinforce"], ["model.every", "model.cells"]),
        ("sort", Architecture(kind="dham"), ["main.exploration"], ["main.reinforce"]),
        ("sort", Architecture(kind="lstm"), ["model.cells"], ["model.hidden", "objective.discount"]),
        ("sort", Architecture(kind="lstm+a"), ["model.cells"], ["data.runs"]),
    ],
)
def test_the_default_space_has_what_the_model_uses(task, model, there, absent):
    space = default_space(Run(task, model), tasks.get(task))
    assert {"main.learning_rate", "main.learning_rate_decay", *there} <= space.keys()
    assert not space.keys() & set(absent)
    for number in range(20):
        draw(Run(task, model), space, 0, number)


def test_several_runs_of_an_input_are_each_others_baseline():
    base, space = merged(RUN, SORT, {}, "")
    drawn = [draw(base, space, 0, number) for number in range(40)]
    assert {run.data.runs for run in drawn} == {1, 4, 8}
    assert all(
        run.objective.baseline == ("leave-one-out" if run.data.runs > 1 else "learned") for run in drawn
    )

    base, space = merged(RUN, SORT, {"objective.baseline": "learned"}, "")
    assert {draw(base, space, 0, number).objective.baseline for number in range(40)} == {"learned"}

    base, space = merged(RUN, SORT, {"data.runs": 4}, "")
    assert base.objective.baseline == "leave-one-out"
    assert "data.runs" not in space


def test_a_setting_with_one_value_is_not_searched():
    base, space = merged(RUN, SORT, {"data.mix": 0.25, "schedule.epochs": 3}, "")
    assert base.data.mix == 0.25
    assert "data.mix" not in space
    assert space["schedule.finish"] == Choice((0,))


def test_a_file_and_flags_say_the_same():
    flags = from_flags(
        [
            "main.learning_rate=log:1e-3:1e-2",
            "objective.discount=uniform:0.5:1",
            "model.hidden=choice:20,40",
            "objective.baseline=choice:none,learned",
            "objective.normalise=true",
            "objective.entropy=negative",
        ]
    )
    file = """{"main.learning_rate": {"log": [1e-3, 1e-2]}, "objective.discount": {"uniform": [0.5, 1]},
        "model.hidden": {"choice": [20, 40]}, "objective.baseline": {"choice": ["none", "learned"]},
        "objective.normalise": true, "objective.entropy": "negative"}"""
    assert flags == from_file(file, "space.json")
    _, space = merged(RUN, SORT, flags, "--set")
    written = json.dumps({name: values.to_json() for name, values in space.items()})
    assert from_json(json.loads(written), "search.json") == space


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"learning_rate": 1}, "a run has no setting 'learning_rate'; there are model.NAME, practice.NAME"),
        ({"data.baches": 1}, "data has no setting 'baches'; there are batch, runs"),
        ({"seed": 1}, "a run has no setting 'seed'; there are model.NAME"),
        ({"data.mix": "much"}, "data.mix must be a finite number, got 'much'"),
        ({"data.mix": 2}, "mix must lie in 0 … 1, got 2.0"),
        ({"data.mix": None}, "must be a finite number, got None"),
        ({"data.mix": {"uniform": [0.5, 0.1]}}, "the lower bound 0.5 is above the upper bound 0.1"),
        ({"data.mix": {"uniform": [0.5]}}, "uniform takes two bounds, got [0.5]"),
        ({"data.mix": {"uniform": 3}}, "uniform takes a list, got 3"),
        ({"data.mix": {"log": [0, 1]}}, "log needs bounds above 0, got 0.0"),
        ({"data.mix": {"uniform": [0, float("inf")]}}, "must be a finite number, got inf"),
        ({"data.mix": {"normal": [0, 1]}}, "must be a value or one of uniform, log, choice"),
        ({"data.mix": {"log": [1, 2], "uniform": [1, 2]}}, "must be a value or one of"),
        ({"data.mix": {"choice": []}}, "choice takes a list, got []"),
        ({"model.hidden": {"choice": [20, 40.5]}}, "model.hidden must be a whole number, got 40.5"),
        ({"model.hidden": {"uniform": [1, 2**40]}}, "bounds must be below"),
        ({"model.hidden": True}, "must be a whole number, got True"),
        ({"objective.normalise": 1}, "objective.normalise must be true or false, got 1"),
        ({"model.soft": 1}, "model.soft is a part of a run, not a setting"),
        ({"training.mix": 1}, "training.mix is data.mix now"),
        ({"model.kind": {"uniform": [1, 2]}}, "is no number: use choice, not uniform"),
        (
            {"objective.entropy": {"choice": ["inverse", "invers"]}},
            "must be one of inverse, negative, got 'invers'",
        ),
        ({"model.depth": 3}, "depth must be 1 or 2, got 3"),
    ],
)
def test_a_wrong_space_is_refused_in_words(given, complaint):
    with pytest.raises(InputError) as refused:
        merged(RUN, SORT, given, "space.json")
    assert complaint in str(refused.value)
    assert str(refused.value).startswith("space.json")


@pytest.mark.parametrize("flag", ["data.mix", "data.mix=", "=3"])
def test_a_wrong_flag_is_refused_in_words(flag):
    with pytest.raises(InputError, match=r"--set"):
        merged(RUN, SORT, from_flags([flag]), "--set")


def test_a_flag_given_twice_is_refused():
    with pytest.raises(InputError, match="twice"):
        from_flags(["data.mix=0", "data.mix=1"])


@pytest.mark.parametrize("text", ["", "[]", "3", '{"a":', "[" * 10**5])
def test_a_file_that_is_no_space_is_refused(text):
    with pytest.raises(InputError, match=r"space\.json"):
        from_file(text, "space.json")


def test_a_trial_that_cannot_be_is_named():
    base, space = merged(RUN, SORT, {"data.runs": {"choice": [3]}}, "--set")
    with pytest.raises(InputError, match="trial 4: data: batch 64 is no multiple of runs 3"):
        draw(base, space, 0, 4)


def test_settings_change_nothing_else():
    assert with_settings(recipes.get("sort"), {"model.controller": "gru"}, "here").model.cell_bound == 0
    changed = with_settings(RUN, {"data.mix": 0.1, "model.size": 7}, "here")
    assert (changed.data.mix, changed.model.size) == (0.1, 7)
    assert with_settings(changed, {"data.mix": RUN.data.mix, "model.size": RUN.model.size}, "") == RUN


def test_no_two_settings_share_their_short_name():
    names = [
        f"{part}.{field.name}"
        for part in ("model", "data", "objective", "optimiser", "schedule", "opening", "main", "end")
        for field in fields(getattr(RUN, part))
    ]
    assert len({short(name) for name in names}) == len(names)
