"""The phases of a run and the pace of each, by hand."""

import pytest

from ham.config import Schedule, changed
from ham.train.schedule import pace, phase_after
from settings import run_with

SETTINGS = run_with(
    epochs=10,
    finish=4,
    learning_rate=0.1,
    learning_rate_decay=0.5,
    exploration=0.01,
    exploration_decay=0.9,
)
SETTINGS = changed(
    SETTINGS, {"end.learning_rate": 0.02, "end.learning_rate_decay": 0.5, "end.reinforce": 3.0}
)


def test_the_main_phase_decays_its_rate_and_its_exploration():
    now = pace(SETTINGS, "main", epoch=2, began=0)
    assert now.learning_rate == pytest.approx(0.025)
    assert now.exploration == pytest.approx(0.0081)
    assert now.reinforce == SETTINGS.main.reinforce


def test_a_main_phase_that_began_again_has_the_first_rate_and_exploration():
    assert pace(SETTINGS, "main", epoch=7, began=7) == pace(SETTINGS, "main", epoch=0, began=0)
    assert pace(SETTINGS, "main", epoch=9, began=7) == pace(SETTINGS, "main", epoch=2, began=0)


def test_the_end_phase_starts_at_its_own_rate_and_does_not_explore():
    now = pace(SETTINGS, "finish", epoch=2, began=1)
    assert now.learning_rate == pytest.approx(0.01)
    assert now.exploration == 0
    assert now.reinforce == 3


@pytest.mark.parametrize(
    ("phase", "began", "epochs", "settled", "then"),
    [
        ("opening", 0, 2, False, "opening"),
        ("opening", 0, 2, True, "main"),
        ("opening", 0, 6, True, "finish"),
        ("main", 0, 5, False, "main"),
        ("main", 0, 6, False, "finish"),
        ("main", 0, 3, True, "finish"),
        ("finish", 3, 6, True, "finish"),
        ("finish", 3, 7, False, "done"),
    ],
)
def test_phases_follow_each_other(phase, began, epochs, settled, then):
    assert phase_after(SETTINGS.schedule, phase, began, epochs, settled) == then


def test_without_an_end_phase_the_main_phase_is_all():
    settings = Schedule(epochs=10)
    assert phase_after(settings, "main", 0, 9, False) == "main"
    assert phase_after(settings, "main", 0, 10, False) == "done"
    assert phase_after(settings, "main", 0, 4, True) == "done"


def test_a_main_phase_of_so_many_epochs_is_counted_from_where_it_began():
    settings = Schedule(epochs=100, finish=10, main=20)
    assert phase_after(settings, "main", 0, 19, False) == "main"
    assert phase_after(settings, "main", 0, 20, False) == "finish"
    assert phase_after(settings, "main", 12, 31, False) == "main"
    assert phase_after(settings, "main", 12, 32, False) == "finish"
    assert phase_after(settings, "main", 80, 90, False) == "finish"
    assert phase_after(settings, "opening", 0, 30, False) == "opening"


@pytest.mark.parametrize(
    ("epochs", "phases"), [(1, ["main"]), (2, ["main", "finish"]), (3, ["main", "finish"])]
)
def test_a_run_shorter_than_its_end_phase_has_a_shorter_one(epochs, phases):
    schedule = Schedule(epochs=epochs, finish=25)
    phase, began, seen = "main", 0, []
    for epoch in range(1, epochs + 1):
        seen.append(phase)
        then = phase_after(schedule, phase, began, epoch, False)
        phase, began = then, epoch if then != phase else began
    assert phase == "done"
    assert seen[:2] == phases[:epochs]
    assert seen.count("main") == 1
