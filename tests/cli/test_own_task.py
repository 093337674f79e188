"""A task of one's own, in every command: what is printed works as it is printed."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from ham.cli import main
from ham.use.trace import Trace

EXAMPLE = Path(__file__).parents[2] / "examples" / "maximum.py"
SMALL = "--data.start 2 --data.leaves 4 --data.batches 10 --data.validation 10 --data.batch 8 --data.runs 2".split()
SMALL += "--model.depth 1 --model.size 4 --model.hidden 4 --model.cells 4 --schedule.epochs 1".split()


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with the task's file and a run of it."""
    here = tmp_path_factory.mktemp("own")
    (here / "maximum.py").write_text(EXAMPLE.read_text())
    return here


@pytest.fixture
def here(place, monkeypatch, capsys):
    monkeypatch.chdir(place)
    if not (place / "runs").exists():
        assert main(["train", "maximum.py:Maximum", *SMALL]) == 0
        (place / "said").write_text(capsys.readouterr().out)
    return place


RUN, TASK = "runs/maximum-0", ("--task", "maximum.py:Maximum")


def test_the_hint_after_training_works_as_printed(here, capsys):
    hint = (here / "said").read_text().rpartition("measure it with: ")[2].strip()
    assert hint == f"ham evaluate {RUN} --task maximum.py:Maximum"
    assert main([*shlex.split(hint)[1:], "--examples", "5"]) == 0
    assert "maximum, test seed" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [
        ("evaluate", RUN, "--examples", "5"),
        ("plot", RUN, "--examples", "5", "--sizes", "4"),
        ("view", RUN, "--no-open", "--out", "page.html"),
        ("trace", RUN, "3 1 2"),
        ("train", "--resume", RUN),
    ],
)
def test_every_command_asks_for_the_file_and_takes_it(here, capsys, words):
    assert main(list(words)) == 2
    assert "(--task maximum.py:Maximum)" in capsys.readouterr().err
    assert main([*words, *TASK]) == 0


def test_stress_takes_it_too(here, capsys):
    assert main(["stress", RUN, *TASK]) == 2
    assert "maximum names no hard cases" in capsys.readouterr().err


def test_solve_takes_a_task_or_a_model(here, capsys):
    assert main(["solve", RUN, "3 1 2", *TASK]) in (0, 1)
    first = capsys.readouterr().out
    assert main(["solve", "maximum.py:Maximum", "3 1 2", "--model", RUN]) in (0, 1)
    assert capsys.readouterr().out == first
    assert main(["solve", RUN, "3 1 2", "--model", RUN, *TASK]) == 2
    assert "are two models" in capsys.readouterr().err
    assert main(["solve", "maximum.py:Maximum", "3 1 2"]) == 2
    assert "no model of maximum is shipped; give one you trained: --model RUN_DIR" in capsys.readouterr().err


def test_leaves_are_counted_from_0_by_every_command(here, capsys):
    assert main(["trace", RUN, "3 1 2", *TASK, "--json"]) == 0
    trace = Trace.from_json(capsys.readouterr().out)
    assert main(["trace", RUN, "3 1 2", *TASK]) == 0
    lines = capsys.readouterr().out.splitlines()[1 : 1 + len(trace.steps)]
    assert [f"leaf {step.leaf}" for step in trace.steps] == [
        f"leaf {line.partition('leaf ')[2].split()[0]}" for line in lines
    ]


def test_the_page_shows_a_task_that_can_only_print_itself(here, capsys):
    (here / "mute.py").write_text(
        EXAMPLE.read_text()
        + "\n\nclass Mute(Maximum):\n    name = 'mute'\n    example = ''\n    parse = Task.parse\n"
    )
    words = ["view", RUN, "--task", "mute.py:Mute", "--no-open", "--out", "mute.html"]
    assert main(words) == 0
    data = (here / "mute.html").read_text().partition('id="data">')[2].partition("</script>")[0]
    (own,) = json.loads(data)["own"]
    assert own["name"] == "mute"
    assert len(own["traces"]) >= 6
    assert main([*words[:2], "3 1 2", *words[2:]]) == 2
    assert "does not say how to read a question from text" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("def __init__(self, width): pass", "TypeError"),
        ("def __init__(self): raise OSError('\\x1b[31mno')", "OSError"),
        ("import sys; sys.exit(0)", "SystemExit"),
    ],
)
def test_a_task_that_cannot_be_made_is_one_line(tmp_path, capsys, code, said):
    file = tmp_path / "own.py"
    file.write_text(f"from ham.tasks.reverse import Reverse\nclass Own(Reverse):\n    {code}\n")
    assert main(["check-task", f"{file}:Own"]) == 2
    told = capsys.readouterr().err
    assert told.startswith("ham: ")
    assert told.count("\n") == 1
    assert said in told
    assert "\x1b" not in told
