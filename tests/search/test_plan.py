"""A search on disk: its trials, how they are compared, what became of them, the report."""

import itertools
import json
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from ham import tasks
from ham.config import Architecture, Run
from ham.core.errors import InputError
from ham.runs import CHECKPOINT, RunFolder, read_tensors
from ham.search import report
from ham.search.plan import Outcome, Plan, SearchFolder, outcomes, ranked, score, standings
from ham.search.screen import Board
from ham.search.space import merged
from ham.train.loop import Epoch, train
from settings import run_with

TINY = run_with(
    "reverse",
    Architecture(cells=4, size=4, hidden=4),
    batch=2,
    batches=2,
    epochs=6,
    validation=5,
    leaves=4,
    finish=2,
    patience=50,
)


def plan_of(trials: int = 3, **changes) -> Plan:
    base, space = merged(
        TINY, tasks.get("reverse"), {"schedule.finish": 2, "model.hidden": {"choice": [4, 5]}}, ""
    )
    return Plan(
        **{"base": base, "space": space, "trials": trials, "seed": 1, "backend": "reference", **changes}
    )


def record(epoch: int, longest: int, error: float, loss: float = 1.0, phase: str = "main") -> dict:
    return {
        "epoch": epoch,
        "phase": phase,
        "longest": longest,
        "error": float(error),
        "bit_error": error / 10,
        "loss": loss,
        "seconds": 2.0 * epoch,
    }


def outcome(number: int, *records: dict, status: str = "finished", message: str = "") -> Outcome:
    return Outcome(number, replace(TINY, seed=number), status, records, message)


@given(st.integers(0, 12), st.floats(0, 100), st.floats(0, 100))
def test_any_error_on_a_larger_tree_beats_none_on_a_smaller(depth, error, smaller):
    assert score(2 << depth, error) > score(1 << depth, smaller)
    assert score(depth + 2, error) > score(depth + 1, smaller)
    if error + 1e-6 < smaller:
        assert score(4, error) > score(4, smaller)


def test_a_trial_reports_its_best_so_far():
    reported = list(standings([record(1, 4, 50), record(2, 4, 60), record(3, 8, 100), record(4, 8, 30)]))
    assert [(r["epoch"], r["longest"], r["error"]) for r in reported] == [
        (1, 4, 50),
        (2, 4, 50),
        (3, 8, 100),
        (4, 8, 30),
    ]
    assert all(later["score"] >= earlier["score"] for earlier, later in itertools.pairwise(reported))
    assert list(standings([])) == []


def test_a_plan_is_read_back_as_it_was(tmp_path):
    for plan in (plan_of(), plan_of(0, seeds=(3, 4), space={})):
        folder = SearchFolder(tmp_path / str(plan.sweep))
        folder.begin(plan)
        assert folder.plan() == plan
        assert [folder.plan().run(number) for number in plan.numbers] == [plan.run(n) for n in plan.numbers]
    assert plan.run(4) == replace(plan.base, seed=4)


def test_a_folder_that_holds_a_search_is_left_alone(tmp_path):
    folder = SearchFolder(tmp_path)
    folder.begin(plan_of())
    with pytest.raises(InputError, match="already holds a search; continue it with --resume"):
        folder.begin(plan_of(5))
    with pytest.raises(InputError, match=r"holds no search: it has no search\.json"):
        SearchFolder(tmp_path / "trials").plan()


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"format": 99}, "format 99"),
        ({"trials": "4"}, "trials should be a int"),
        ({"backend": "\x1b[31m<script>"}, "backend should be auto or native or reference"),
        ({"trials": 0}, "1 to 100,000 trials"),
        ({"trials": 10**6}, "1 to 100,000 trials"),
        ({"seed": -1}, "must not be negative"),
        ({"seeds": ["x"]}, "seeds should be whole numbers"),
        ({"success": 200.0}, "success must lie"),
        ({"base": {}}, "base has format None"),
        ({"space": {"data.mix": 3}}, "data.mix should be a range or a choice"),
        ({"space": {"data.foo": {"choice": [1]}}}, "no setting 'foo'"),
    ],
)
def test_a_damaged_plan_is_refused_in_words(change, complaint):
    data = {**json.loads(plan_of().to_json()), **change}
    with pytest.raises(InputError) as refused:
        Plan.from_json(json.dumps(data), "search.json")
    assert complaint in str(refused.value)


def test_a_plan_is_checked_before_any_trial_begins():
    plan_of().check()
    stack = Run("stack", Architecture(kind="lstm+ham"))
    with pytest.raises(InputError, match="stack is online"):
        plan_of(base=stack, space={}).check()
    add = run_with("add", start=1, leaves=1)
    with pytest.raises(InputError, match="needs at least"):
        plan_of(base=add, space={}).check()


def test_what_became_of_a_trial_is_read_from_its_folder(tmp_path):
    folder, plan = SearchFolder(tmp_path), plan_of(5)
    folder.begin(plan)
    for number in range(4):
        folder.trial(number).prepare(plan.run(number))
        assert folder.trial(number).outcome(number, plan.run(number)).status == "open"
    for _ in train(plan.run(0), folder.trial(0)):
        pass
    folder.trial(1).end("stopped", 2)
    folder.trial(2).end("diverged", 1, "the loss is not finite")
    folder.trial(3).fail("Traceback\nOSError: no space left")
    found = outcomes(folder, plan)
    assert [o.status for o in found] == ["finished", "stopped", "diverged", "failed", "open"]
    assert [o.ended for o in found] == [True, True, True, False, False]
    assert found[0].epochs == 6
    assert found[2].message == "the loss is not finite"
    with pytest.raises(InputError, match="holds another run"):
        folder.trial(0).prepare(plan.run(1))


@pytest.mark.parametrize("stop", [2, 5, 6])
def test_a_recipe_trains_what_its_trial_had_to_the_same_bits(tmp_path, stop):
    run, folder = plan_of().run(0), SearchFolder(tmp_path / "search").trial(0)
    folder.prepare(run)
    events = train(run, folder)
    for event in events:
        if isinstance(event, Epoch) and event.epoch == stop:
            break
    events.close()
    if stop < run.schedule.epochs:
        folder.end("stopped", stop)
    trial = folder.outcome(0, run)
    assert trial.recipe.schedule.epochs == stop
    assert (trial.recipe == run) == (stop == run.schedule.epochs)

    again = RunFolder(tmp_path / "again")
    again.begin(trial.recipe)
    for _ in train(trial.recipe, again):
        pass
    assert len(again.metrics()) == stop
    one, other = (read_tensors(place.path / CHECKPOINT)[0] for place in (folder, again))
    assert all(one[name].equal(other[name]) for name in one)


def test_trials_are_ranked_by_tree_then_error_then_loss():
    trials = [
        outcome(0, record(1, 4, 0.0)),
        outcome(1, record(1, 8, 90.0)),
        outcome(2, record(1, 8, 20.0, loss=2.0)),
        outcome(3, record(1, 8, 20.0, loss=1.0), record(2, 8, 50.0)),
        outcome(4, status="failed"),
        outcome(5, record(1, 8, 20.0, loss=math.nan)),
    ]
    assert [o.number for o in ranked(trials)] == [3, 2, 5, 1, 0]


def test_a_summary_counts_seeds_that_never_got_there_as_wrong():
    plan = plan_of(0, seeds=(0, 1, 2, 3), space={}, success=5.0)
    found = [
        outcome(0, record(1, 4, 0.0)),
        outcome(1, record(1, 4, 5.0)),
        outcome(2, record(1, 4, 20.0)),
        outcome(3, record(1, 2, 0.0)),
    ]
    summary = report.summary(plan, found)
    assert (summary["succeeded"], summary["success_rate"], summary["reached_last_tree"]) == (2, 0.5, 3)
    assert (summary["best_error"], summary["worst_error"], summary["median_error"]) == (0.0, 100.0, 12.5)
    assert summary["mean_error"] == pytest.approx(31.25)
    words = report.in_words(plan, found)
    assert "2 of 4 succeeded (50%" in words
    assert "mean 31.25%, median 12.50%, best 0.00%, worst 100.00%" in words


def test_the_report_of_a_search(tmp_path):
    folder, plan = SearchFolder(tmp_path), plan_of(6)
    folder.begin(plan)
    trials = [
        replace(outcome(n, record(1, 4, 90.0 - n), record(2, 4 if n else 2, 50.0 - n)), run=plan.run(n))
        for n in range(4)
    ]
    trials += [
        outcome(4, record(1, 4, 99.0), status="diverged", message="not | finite"),
        outcome(5, status="open"),
    ]
    report.write(folder, plan, trials)
    page = (tmp_path / "search.md").read_text()
    assert "Of 6 trials 4 ran to their end, 1 diverged, 1 are unfinished." in page
    assert page.index("| 3 | finished") < page.index("| 2 | finished")
    assert "| 4 | diverged | not \\| finite |" in page
    assert "![Error over each setting](search.png)" in page
    assert (tmp_path / "search.png").read_bytes().startswith(b"\x89PNG")
    assert Run.from_json((tmp_path / "best.json").read_text(), "best") == plan.run(3)
    results = json.loads((tmp_path / "results.json").read_text())
    assert results["trials"][3]["settings"]["model.hidden"] == plan.run(3).model.hidden
    assert results["trials"][5]["error"] is None


def test_the_report_of_a_search_in_which_nothing_happened(tmp_path):
    folder, plan = SearchFolder(tmp_path), plan_of(2)
    folder.begin(plan)
    report.write(folder, plan, outcomes(folder, plan))
    assert "Of 2 trials 2 are unfinished." in (tmp_path / "search.md").read_text()
    assert not (tmp_path / "best.json").exists()


def test_a_best_trial_that_was_stopped_says_how_to_go_on(tmp_path):
    folder, plan = SearchFolder(tmp_path), plan_of(1)
    folder.begin(plan)
    report.write(folder, plan, [outcome(0, record(1, 4, 9.0), status="stopped")])
    page = (tmp_path / "search.md").read_text()
    assert "the recipe trains the 1 epochs it had" in page
    assert "--resume" in page


HOSTILE = (
    "Traceback\nValueError: \x1b]0;owned\x07<script>alert(1)</script> | [x](javascript:x) `$(date)` \u202e"
)


def test_what_a_trial_says_reaches_no_page_and_no_terminal_as_it_is(tmp_path, capsys):
    folder = SearchFolder(tmp_path / "a`b\x1b[31m$(date)")
    folder.begin(plan_of(trials=2))
    found = [outcome(0, record(1, 4, 2.0)), outcome(1, status="failed", message=HOSTILE)]
    for plan in (plan_of(trials=2), plan_of(seeds=(0, 1))):
        report.write(folder, plan, found)
        page = (folder.path / ("sweep.md" if plan.sweep else "search.md")).read_text()
        assert all(line.isprintable() for line in page.splitlines())
        assert "<script>" not in page
        assert "&lt;script&gt;alert(1)&lt;/script&gt; \\|" in page
        console = Console(stderr=True)
        board = Board(plan, found, None, console)
        board.ended(found[1])
        board.again(1, HOSTILE)
        said = capsys.readouterr().err
        assert said.count("<script>") == 2
        assert all(line.isprintable() for line in said.splitlines())
    assert "``` ham train" not in page
