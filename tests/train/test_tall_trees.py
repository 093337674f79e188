"""Tall trees, first states and hard cases: what they are, and that a run with them is still reproducible."""

import numpy as np
import pytest
import torch
from test_loop import SETTINGS, begin, result

from ham import tasks
from ham.config import Architecture, Run, changed
from ham.core.errors import InputError
from ham.models import Model
from ham.models.recurrent import episode_of
from ham.tasks.hard_cases import draw_hard
from ham.train import data, loop
from ham.train.evaluate import Score, evaluate
from ham.train.loop import train
from ham.train.practice import PLAIN, Conditions, scattered
from settings import run_with

HARD = Conditions(tall=0.5, tallest=64, anywhere=0.5, cells=6, bound=2.0, hard=0.3)


def rng(seed=0):
    return np.random.default_rng(seed)


@pytest.mark.parametrize("rows", [0, 1, 3, 8])
def test_rows_lie_at_different_leaves_in_order(rows):
    generator, seen = rng(), set()
    for _ in range(300):
        leaves, places = HARD.tree(generator, rows, 8, online=False)
        seen.add(leaves)
        assert (places is None) == (leaves == 8)
        if places is not None:
            assert len(places) == rows
            assert (np.diff(places) > 0).all()
            assert rows == 0 or 0 <= places[0] <= places[-1] < leaves
    assert seen == {8, 16, 32, 64}


def test_the_share_is_that_of_taller_trees():
    generator = rng()
    taller = [HARD.tree(generator, 8, 8, online=False)[0] > 8 for _ in range(1000)]
    assert 0.45 < np.mean(taller) < 0.55


def test_half_of_the_taller_trees_have_their_rows_side_by_side():
    generator = rng()
    drawn = [HARD.always().tree(generator, 8, 8, online=False)[1] for _ in range(500)]
    beside = np.mean([places[-1] - places[0] == 7 for places in drawn])
    assert 0.5 < beside < 0.9, "and some of the scattered ones too"


def test_scattered_rows_leave_full_empty_and_sparse_halves_at_every_height():
    generator = rng()
    shares = {16: set(), 32: set()}
    for _ in range(400):
        places = np.array(scattered(generator, 16, 64))
        for size, found in shares.items():
            for first in range(0, 64, size):
                inside = ((places >= first) & (places < first + size)).sum()
                found.add("empty" if inside == 0 else "full" if inside == min(size, 16) else "sparse")
    assert shares == {16: {"empty", "full", "sparse"}, 32: {"empty", "full", "sparse"}}


def test_a_tree_that_is_tall_enough_stays_and_so_does_one_to_be_filled():
    assert HARD.always().tree(rng(), 64, 64, online=False) == (64, None)
    assert HARD.always().tree(rng(), 16, 8, online=True) == (8, None)
    leaves, places = HARD.always().tree(rng(), 8, 8, online=True)
    assert leaves > 8
    assert places is None


def test_first_states_are_inside_the_bound_and_the_same_in_all_runs_of_an_input():
    state, cell = HARD.start(rng(), 400, runs=3)
    assert state.shape == cell.shape == (1200, 6)
    assert torch.equal(cell[::3], cell[1::3])
    assert torch.equal(state[::3], state[2::3])
    moved = (cell[::3] != 0).any(1)
    assert 0.4 < moved.float().mean() < 0.6
    inside = cell[::3][moved]
    assert -2 <= inside.min() < -1.9 < 1.9 < inside.max() <= 2
    assert (state.abs() <= torch.tanh(cell).abs()).all()
    assert (state * cell >= 0).all()


def test_plain_conditions_draw_nothing():
    generator = rng()
    batch = tasks.get("sort").sample(rng(), 4, 8, np.full(4, 8))
    assert PLAIN.surroundings(generator, batch, 8, tasks.get("sort")) == (8, {})
    assert generator.random() == rng().random()


def test_tall_trees_may_wait_for_longer_inputs():
    run = changed(run_with(tall=0.5, tall_from=16), {"end.tall": 0.25})
    assert [Conditions.of(run, "main", longest).tall for longest in (8, 16, 32)] == [0.0, 0.5, 0.5]
    assert [Conditions.of(run, "finish", longest).tall for longest in (8, 16, 32)] == [0.25] * 3


def bounded(task, **settings):
    """A short run that practises all there is, in other shares in its end phase."""
    online = task in ("stack", "queue", "priority_queue")
    model = Architecture("raw-ham" if online else "lstm+ham", cells=4, size=4, hidden=4, top=2.0)
    changes = {"data.start": 4, "data.leaves": 8, "data.tallest": 32}
    changes |= {"main.tall": 0.5, "main.hard": 0.3, "end.tall": 0.3, "end.hard": 0.6}
    if online:
        changes |= {"main.stocked": 0.3, "end.stocked": 0.4}
    else:
        changes |= {"model.cell_bound": 2.0, "main.anywhere": 0.3, "end.anywhere": 0.7}
    return changed(run_with(task, model, seed=5, **SETTINGS), changes | settings)


@pytest.mark.parametrize(
    ("task", "settings"),
    [("sort", {}), ("add", {"practice.varied": 0.5}), ("queue", {"practice.fills": 0.5})],
)
def test_a_run_that_practises_all_of_it_resumes_to_the_same_bits(
    engine, tmp_path, monkeypatch, task, settings
):
    monkeypatch.setattr(loop, "BATCHES_BETWEEN_REPORTS", 1)
    run = bounded(task, **settings)
    whole, parts = begin(tmp_path / "whole", run), begin(tmp_path / "parts", run)
    for _ in train(run, whole):
        pass
    while parts.read_state() is None or parts.read_state()[1]["phase"] != "done":
        training = train(run, parts)
        for _ in zip(range(4), training, strict=False):
            pass
        training.close()
    assert result(parts) == result(whole)


def test_hard_cases_are_trained_on_in_their_share(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(data, "draw_hard", lambda *given: drawn.append(draw_hard(*given)) or drawn[-1])
    run = bounded("stack", **{"data.batches": 50, "schedule.epochs": 1, "schedule.finish": 0})
    for _ in train(run, begin(tmp_path / "run", run)):
        pass
    assert 5 <= len(drawn) <= 25
    assert {leaves for _, leaves in drawn} == {2}, "four operations fill two leaves"


def test_the_end_phase_is_not_compared_with_what_was_easier(tmp_path):
    """With other first states in the end phase alone, its first epoch is the best so far whatever its error."""
    run = bounded("sort")
    folder = begin(tmp_path / "run", run)
    for _ in train(run, folder):
        pass
    assert folder.kept()["phase"] == "finish"


def test_validation_sees_what_is_practised():
    calls = []

    class Noting(Model):
        def episode(self, questions, places=None, start=None):
            inputs = questions.inputs
            calls.append((questions.leaves, places is not None, start is not None, inputs.shape[1]))
            return episode_of(torch.zeros(len(inputs), questions.symbols, 11))

    evaluate(Noting(), tasks.get("sort"), leaves=8, lengths=(1, 8), examples=800, rng=rng(), conditions=HARD)
    assert len(calls) == 25
    assert all(leaves > 8 and placed and started for leaves, placed, started, _ in calls)


def test_half_of_what_is_validated_on_is_hard(monkeypatch):
    from ham.train import evaluate as module

    drawn = []
    monkeypatch.setattr(module, "draw_hard", lambda *given: drawn.append(given[2]) or draw_hard(*given))
    model = Architecture("raw-ham", size=4, hidden=4).build(tasks.get("queue"))
    evaluate(
        model,
        tasks.get("queue"),
        leaves=8,
        lengths=(1, 8),
        examples=400,
        rng=rng(),
        conditions=Conditions(hard=0.1),
    )
    assert drawn == [32] * 6


def test_scores_add_up():
    assert Score(10, 1, 40, 2, 0.5) + Score(30, 3, 60, 4, 1.5) == Score(40, 4, 100, 6, 1.25)


def test_a_run_on_hard_cases_that_are_not_there_is_refused(tmp_path):
    run = Run("sort4", Architecture(size=4, hidden=4))
    run = changed(run, {"main.hard": 1.0, "data.batches": 1, "schedule.epochs": 1})
    with pytest.raises(InputError, match="sort4 names no hard cases"):
        next(train(run, begin(tmp_path / "run", run)))
