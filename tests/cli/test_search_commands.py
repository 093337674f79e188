"""`ham tune` and `ham sweep` up to the point where Ray starts, and what they show; bad input is one line."""

import io
import json
import socket
import sys
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from rich.console import Console

from ham import cli, recipes
from ham.config import changed
from ham.core.errors import InputError
from ham.core.install import install
from ham.search import engine
from ham.search.plan import Outcome, Plan, SearchFolder, standings
from ham.search.screen import Board
from search.test_plan import outcome, plan_of, record

pytestmark = pytest.mark.usefixtures("environment_as_it_was")


@pytest.fixture
def ran(monkeypatch, tmp_path) -> list:
    """Commands run here, in an empty folder, with an engine that only notes what it was to run."""
    monkeypatch.chdir(tmp_path)
    calls = []
    monkeypatch.setattr(engine, "connected", lambda resources: nullcontext())
    monkeypatch.setattr(
        engine, "run", lambda folder, plan, resources, screen: calls.append((folder, plan, resources))
    )
    return calls


@pytest.mark.parametrize("link", ["trials", "trials/0001"])
def test_nothing_is_written_through_a_link(ran, tmp_path, capsys, link):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "search" / link).parent.mkdir(parents=True)
    (tmp_path / "search" / link).symlink_to(tmp_path / "elsewhere")
    assert cli.main(["sweep", "reverse", "--seeds", "0:2", "--out", "search"]) == 2
    assert f"{link} is a link, and none is written through" in capsys.readouterr().err
    assert not ran


def test_a_search_starts_from_the_recipe_of_its_task(ran, capsys):
    assert cli.main(["tune", "add", "--trials", "3", "--seed", "9", "--cores", "2", "--hours", "0.5"]) == 1
    ((folder, plan, resources),) = ran
    assert folder.path.name == "tune-add-9"
    assert (plan.trials, plan.seed, len(plan.numbers)) == (3, 9, 3)
    assert (resources.cores, resources.hours, resources.address, resources.workers) == (2, 0.5, None, None)
    assert plan.base.data.leaves == 32
    assert "main.learning_rate" in plan.space
    said = capsys.readouterr()
    assert "Of 3 trials 3 are unfinished." in said.out
    assert "go on with: ham tune --resume" in said.err


def test_flags_go_over_the_file_and_both_over_the_default_space(ran, tmp_path):
    (tmp_path / "space.json").write_text('{"data.mix": {"uniform": [0.1, 0.2]}, "model.hidden": 30}')
    cli.main(
        ["tune", "sort", "--space", "space.json", "--set", "data.mix=0.15", "--set", "schedule.epochs=4"]
    )
    plan = ran[0][1]
    assert (plan.base.data.mix, plan.base.model.hidden, plan.base.schedule.epochs) == (0.15, 30, 4)
    assert not {"data.mix", "model.hidden"} & plan.space.keys()
    assert "objective.discount" in plan.space


@pytest.mark.parametrize(
    ("words", "kind"),
    [(["sort"], "lstm+ham"), (["stack"], "raw-ham"), (["sort", "--model", "lstm+a"], "lstm+a")],
)
def test_the_model_follows_from_the_task_unless_it_is_named(ran, words, kind):
    cli.main(["tune", *words, "--trials", "1"])
    assert ran[0][1].base.model.kind == kind


@pytest.mark.parametrize("task", ["sort", "stack"])
def test_only_what_the_paper_leaves_open_is_searched_to_its_letter(ran, task):
    cli.main(["tune", task, "--paper", "--trials", "1", "--set", "schedule.epochs=7"])
    plan = ran[0][1]
    assert plan.base == changed(recipes.get(f"{task}-paper"), {"schedule.epochs": 7})
    left_open = {"model.hidden", "model.depth", "objective.discount", "data.threshold"}
    assert left_open < plan.space.keys()
    assert not {"data.mix", "data.runs", "main.reinforce", "schedule.finish"} & plan.space.keys()


def test_a_search_is_resumed_with_what_it_was_begun_with(ran, tmp_path, capsys):
    cli.main(["tune", "sort", "--trials", "2", "--out", "here", "--set", "data.mix=0.5"])
    cli.main(["tune", "--resume", "here", "--trials", "5", "--workers", "3"])
    (_, before, _), (_, after, resources) = ran
    assert [after.run(number) for number in range(2)] == [before.run(number) for number in range(2)]
    assert (after.trials, resources.workers) == (5, 3)
    assert SearchFolder("here").plan() == after


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["tune"], "name a task"),
        (["tune", "srot"], "no task is named 'srot'"),
        (["tune", "stack", "--model", "lstm+ham"], "stack is online"),
        (["tune", "sort", "--paper", "--model", "lstm"], "--model names another"),
        (["tune", "--resume", "old", "--paper"], "it takes no --paper"),
        (["tune", "sort", "--trials", "0"], "1 to 100,000 trials, got 0"),
        (["tune", "sort", "--trials", "x"], "trials"),
        (["tune", "sort", "--seed", "-1"], "must not be negative"),
        (["tune", "sort", "--hours", "0"], "hours must be above 0"),
        (["tune", "sort", "--hours", "nan"], "hours must be above 0"),
        (["tune", "sort", "--workers", "0"], "workers must lie in 1 … 1,000"),
        (["tune", "sort", "--cores", "0"], "cores must lie in 1 … 1,000"),
        (["tune", "sort", "--success", "101"], "success must lie"),
        (["tune", "sort", "--space", "nowhere.json"], "cannot read nowhere.json"),
        (["tune", "sort", "--set", "data.mix=7"], "mix must lie in 0 … 1"),
        (
            ["tune", "sort", "--set", "objective.baseline=leave-one-out"],
            "the leave-one-out baseline needs runs",
        ),
        (["tune", "sort", "--address", "ray://head:10001"], "run ham on a machine of the cluster"),
        (["tune", "--resume", "nowhere"], "holds no search"),
        (["tune", "--resume", "old", "--seed", "1"], "it takes no --seed"),
        (["tune", "sort", "--resume", "old"], "the search in old is of reverse, not of sort"),
        (["tune", "--resume", "old", "--trials", "1"], "was begun with 2 trials"),
        (["tune", "sort", "--out", "old"], "already holds a search"),
        (["sweep", "--resume", "old"], "another kind of search; go on with: ham tune"),
        (["sweep"], "name a recipe"),
        (["sweep", "srot"], "neither a recipe"),
        (["sweep", "sort", "--seeds", "4"], "seeds must be A:B"),
        (["sweep", "sort", "--seeds", "4:4"], "seeds must be A:B"),
        (["sweep", "sort", "--set", "data.mix=uniform:0:1"], "a sweep changes nothing but the seed"),
    ],
)
def test_bad_input_is_refused_in_one_line_before_anything_starts(ran, capsys, words, complaint):
    SearchFolder("old").begin(plan_of(2))
    before = SearchFolder("old").plan()
    assert cli.main(words) == 2
    said = capsys.readouterr().err
    assert complaint in said
    assert len(said.splitlines()) == 1
    assert not ran
    assert SearchFolder("old").plan() == before


def test_a_sweep_takes_a_recipe_or_a_file_and_seeds(ran, tmp_path, capsys):
    assert cli.main(["sweep", "sort", "--seeds", "2:5"]) == 1
    capsys.readouterr()
    (tmp_path / "best.json").write_text(plan_of().run(1).to_json())
    cli.main(["sweep", "best.json", "--seeds", "0:2", "--set", "schedule.epochs=3", "--json"])
    (folder, plan, _), (_, other, _) = ran
    assert (folder.path.name, plan.numbers, plan.base.task) == ("sweep-sort", (2, 3, 4), "sort")
    assert [plan.run(number).seed for number in plan.numbers] == [2, 3, 4]
    assert other.base.schedule.epochs == 3
    assert json.loads(capsys.readouterr().out)["summary"]["open"] == 2


def test_a_search_that_is_stopped_says_how_to_go_on(ran, monkeypatch, capsys):
    def stopped(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(engine, "run", stopped)
    assert cli.main(["sweep", "sort", "--seeds", "0:2", "--out", "here"]) == 130
    assert "go on with: ham sweep --resume" in capsys.readouterr().err
    assert SearchFolder("here").plan().numbers == (0, 1)


def test_stopped_before_it_began_it_leaves_nothing(ran, monkeypatch, tmp_path, capsys):
    def stopped(resources):
        raise KeyboardInterrupt

    monkeypatch.setattr(engine, "connected", stopped)
    assert cli.main(["sweep", "sort", "--seeds", "0:2"]) == 130
    assert capsys.readouterr().err == "ham: interrupted\n"
    assert not any(tmp_path.iterdir())


def test_where_nothing_can_be_written_ray_is_not_even_started(ran, capsys):
    assert cli.main(["tune", "sort", "--out", "/dev/null/search"]) == 2
    assert "/dev/null is not a folder" in capsys.readouterr().err
    assert not ran


@pytest.mark.ray
def test_a_cluster_that_is_not_there_is_said_at_once(monkeypatch, tmp_path, capsys):
    pytest.importorskip("ray.tune")
    monkeypatch.chdir(tmp_path)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        assert cli.main(["tune", "sort", "--address", address]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"ham: no Ray cluster can be used at {address}")
    assert len(said.splitlines()) == 1
    assert not any(tmp_path.iterdir())


def test_without_ray_one_line_says_what_to_install(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    for module in [name for name in sys.modules if name == "ray" or name.startswith("ray.")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "ray", None)
    for command in (["tune", "sort"], ["sweep", "sort"]):
        assert cli.main(command) == 2
        said = capsys.readouterr().err
        assert install("tune") in said
        assert len(said.splitlines()) == 1
    assert not any(tmp_path.iterdir())


@pytest.mark.ray
def test_trials_that_ended_before_a_resume_still_count_for_those_that_go_on(tmp_path):
    pytest.importorskip("ray.tune")
    folder, plan = SearchFolder(tmp_path), plan_of(8)
    folder.begin(plan)
    before = [outcome(n, record(1, 4, 10.0), record(2, 4, 5.0 + n)) for n in range(6)]
    scheduler = engine._halving(folder, plan, before)
    for number, error, decision in ((6, 4.0, "CONTINUE"), (7, 50.0, "STOP")):
        folder.trial(number).prepare(plan.run(number))
        trial = SimpleNamespace(trial_id=str(number), config={"number": number})
        scheduler.on_trial_add(None, trial)
        (standing,) = standings([record(1, 4, error)])
        assert scheduler.on_trial_result(None, trial, standing) == decision
        ended = decision == "STOP"
        assert folder.trial(number).outcome(number, plan.run(number)).ended == ended
    assert not (folder.trial(0).path / "end.json").exists()


@pytest.fixture
def reports(monkeypatch) -> list[dict]:
    """What trials that run here report to Ray."""
    tune = pytest.importorskip("ray.tune")
    collected: list[dict] = []
    monkeypatch.setattr(tune, "report", collected.append)
    return collected


def ran_here(folder: SearchFolder, plan: Plan, number: int) -> Outcome:
    engine.trial({"folder": str(folder.path), "cores": 1, "number": number})
    return folder.trial(number).outcome(number, plan.run(number))


@pytest.mark.ray
def test_a_trial_reports_every_epoch_and_after_a_restart_where_it_stands(tmp_path, reports):
    folder, plan = SearchFolder(tmp_path), plan_of(2)
    folder.begin(plan)
    assert ran_here(folder, plan, 1).status == "finished"
    assert [report["epoch"] for report in reports] == [1, 2, 3, 4, 5, 6]
    before = (folder.trial(1).path / "metrics.jsonl").read_bytes()
    assert ran_here(folder, plan, 1).status == "finished"
    assert reports[6:] == reports[5:6]
    assert (folder.trial(1).path / "metrics.jsonl").read_bytes() == before


@pytest.mark.ray
def test_a_trial_that_diverges_ends_and_is_not_run_again(tmp_path, reports):
    base = plan_of().base
    wild = changed(base, {"main.learning_rate": 1e30})
    folder, plan = SearchFolder(tmp_path), plan_of(1, base=wild, space={})
    folder.begin(plan)
    found = ran_here(folder, plan, 0)
    assert found.status == "diverged"
    assert found.ended
    assert "not finite" in found.message
    assert ran_here(folder, plan, 0) == found


@pytest.mark.ray
def test_a_trial_that_failed_can_be_tried_again(tmp_path, reports, monkeypatch):
    folder, plan = SearchFolder(tmp_path), plan_of(1)
    folder.begin(plan)

    def broken(run, folder):
        raise OSError("no room left")
        yield

    with monkeypatch.context() as once:
        once.setattr("ham.train.loop.train", broken)
        found = ran_here(folder, plan, 0)
    assert (found.status, found.ended) == ("failed", False)
    assert found.message.splitlines()[-1] == "OSError: no room left"
    assert ran_here(folder, plan, 0).status == "finished"


@pytest.mark.ray
def test_a_node_that_does_not_see_the_folder_says_so(tmp_path, reports):
    with pytest.raises(InputError, match=r"does not see .* must be on storage that all nodes share"):
        engine.trial({"folder": str(tmp_path / "elsewhere"), "cores": 1, "number": 0})


def board(plan: Plan, terminal: bool = False, done: list[Outcome] | None = None) -> tuple[Board, io.StringIO]:
    said = io.StringIO()
    console = Console(file=said, force_terminal=terminal, width=200)
    return Board(plan, done or [], None, console), said


def test_lines_tell_of_every_trial_that_ends():
    shown, said = board(plan_of(4))
    shown.running(0)
    shown.running(1)
    shown.reported(0, {"epoch": 1, "longest": 4, "error": 50.0, "seconds": 2.0, "score": 1.75})
    shown.again(1, "")
    shown.again(2, "Traceback:\nOSError: no room")
    shown.ended(outcome(0, record(1, 4, 50.0)))
    shown.ended(outcome(1, status="failed", message="Traceback:\nOSError: disk [full]"))
    lines = said.getvalue().splitlines()
    assert lines[0] == "trial 1 lost its worker and goes on elsewhere"
    assert lines[1] == "trial 2 failed and is tried again: OSError: no room"
    assert lines[2].startswith("trial 0: finished after 1 epochs, 2 s, n 4, error 50.00%  (1 of 4 trials")
    assert lines[3] == "trial 1 failed: OSError: disk [full]"


def test_the_live_table_shows_running_trials_first_then_the_best():
    done = [outcome(n, record(1, 4, 10.0 * n)) for n in range(30)]
    shown, said = board(plan_of(40), terminal=True, done=done)
    shown.running(35)
    shown.console.print(shown)
    rows = [line.split() for line in said.getvalue().splitlines()]
    assert [row[0] for row in rows[2:5]] == ["35", "0", "1"]
    assert rows[3][1:] == ["finished", "1", "4", "0.00%", "2"]
    assert "and 15 more" in said.getvalue()
    assert "30 of 40 trials, 1 running" in said.getvalue()


def test_the_time_left_is_guessed_from_the_trials_that_ended():
    shown, _ = board(plan_of(10))
    assert shown.seconds_left(8, 2) is None
    shown.took = [60.0, 120.0]
    assert shown.seconds_left(8, 2) == pytest.approx(360.0, abs=1)
    shown.until = shown.began + 100
    assert shown.seconds_left(8, 2) == pytest.approx(100.0, abs=5)
