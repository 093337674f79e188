"""What is typed: help that fits the screen, and errors that say what was meant."""

from __future__ import annotations

import io
import os
import subprocess
import sys

import pytest

from ham import cli
from ham.cli import arguments, main

WIDTH = 80


def said(capsys, *words: str) -> str:
    """What a command complains of, in one line."""
    assert main(list(words)) == 2
    printed, complaint = capsys.readouterr()
    assert (printed, complaint.count("\n")) == ("", 1)
    return complaint


def helped(capsys, monkeypatch, *words: str) -> str:
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    with pytest.raises(SystemExit) as end:
        main(list(words))
    assert not end.value.code
    return capsys.readouterr().out


@pytest.mark.parametrize("flag", ["--help", "--help-all"])
@pytest.mark.parametrize("name", cli.COMMANDS)
def test_help_fits_the_screen_and_speaks_of_no_none(name, flag, capsys, monkeypatch):
    printed = helped(capsys, monkeypatch, name, flag)
    assert max(map(len, printed.splitlines())) <= WIDTH
    assert "None" not in printed
    assert name == "train" or "(default: False)" not in printed
    assert "(default: )" not in printed


@pytest.mark.parametrize("width", ["1", "5"])
def test_help_and_errors_on_a_screen_that_is_far_too_narrow(width):
    """In a process of its own, with a limit: tyro's boxes would never end."""
    environment = {**os.environ, "COLUMNS": width}

    def run(*words):
        line = [sys.executable, "-m", "ham", "evaluate", *words]
        return subprocess.run(line, env=environment, capture_output=True, text=True, timeout=60, check=False)

    helped = run("--help")
    assert helped.returncode == 0
    assert max(map(len, helped.stdout.splitlines())) <= arguments.LEAST
    assert "there is no option --exmples (did you mean --examples?)" in run("sort", "--exmples", "3").stderr


def test_the_overview_fits_the_screen():
    assert max(map(len, cli.overview().splitlines())) <= WIDTH


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("train sort --learning-rate 0.1", "--main.learning-rate or --end.learning-rate"),
        ("train sort --lr 0.1", "--main.learning-rate or --end.learning-rate"),
        ("train sort --epochs 3", "--schedule.epochs"),
        ("train sort --model.sizes 3", "--model.size"),
        ("train srt", "sort"),
        ("train sort --recipe sort-lst", "sort-lstm"),
        ("evaluate prioriti_queue", "priority_queue"),
        ("evaluate sort --exmples 3", "--examples"),
        ("evaluate sort --backend natve", "native"),
        ("solve sort 1:1 --modle x", "--model"),
        ("evalute sort", "evaluate"),
    ],
)
def test_what_was_meant(words, meant, capsys):
    assert f"(did you mean {meant}?)" in said(capsys, *words.split())


def test_what_nobody_can_have_meant_is_not_guessed_at(capsys):
    assert "did you mean" not in said(capsys, "train", "sort", "--frobnicate", "3")


@pytest.mark.parametrize(
    ("words", "choices"),
    [
        ("reproduce --table 3", "--table must be one of 1, 2, got '3'"),
        ("evaluate sort --backend gpu", "--backend must be one of auto, native, reference, got 'gpu'"),
        ("solve sort 1:1 --format x", "--format must be one of csv, lines, got 'x'"),
        ("evaluate sort --seed x", "ham: --seed: expected a whole number, got 'x'; see"),
        ("tune sort --hours x", "ham: --hours: expected a number, got 'x'; see"),
    ],
)
def test_choices_are_those_that_there_are(words, choices, capsys):
    assert choices in said(capsys, *words.split())


def test_a_question_without_quotes(capsys):
    assert "'3:9' is one argument too many; what belongs together goes into quotes" in said(
        capsys, "solve", "sort", "7:1", "3:9"
    )


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("x = 1\nclass Own(:\n", "own.py, line 2: invalid syntax"),
        ("\nimport nosuch\n", "own.py, line 2: ModuleNotFoundError: No module named 'nosuch'"),
        ("def f():\n    return 1 / 0\nf()\n", "own.py, line 2: ZeroDivisionError: division by zero"),
    ],
)
def test_a_task_file_that_is_wrong(text, complaint, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(text)
    for words in (["check-task"], ["train"], ["evaluate", "sort", "--task"]):
        assert said(capsys, *words, "own.py:Own") == f"ham: {complaint}\n"


def test_a_task_file_that_is_not_named_as_one(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py:x").write_text("class Own: pass\n")
    assert "own.py:x is no Python file to take the task Own from: its name must end in .py" in said(
        capsys, "check-task", "own.py:x:Own"
    )


def test_rare_options_are_told_by_help_all_alone(capsys, monkeypatch):
    short, whole = (helped(capsys, monkeypatch, "tune", flag) for flag in ("--help", "--help-all"))
    assert "--address" not in short
    assert "ham tune --help-all tells of all options." in short
    assert "--address" in whole
    assert "--help-all tells" not in whole


def test_a_flag_is_described_as_what_it_does(capsys, monkeypatch):
    assert "--no-speed  leave out the speed check" in " ".join(
        helped(capsys, monkeypatch, "doctor", "--help").replace("│", "").splitlines()
    )


def test_help_keeps_its_boxes_for_terminals_that_can_show_them(monkeypatch):
    class Screen(io.StringIO):
        encoding = "utf-8"

    screen = Screen()
    monkeypatch.setattr(sys, "stdout", screen)
    with pytest.raises(SystemExit):
        arguments.bound(lambda: None, ["--help"], "ham nothing")
    assert "╭" in screen.getvalue()


def test_a_terminal_that_knows_ascii_alone_is_spoken_to_in_ascii():
    words = [sys.executable, "-m", "ham", "train", "sort", "--seed", "-1"]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(words, env=environment, capture_output=True, check=False)
    assert done.stderr == b"ham: seed must lie in 0 ... 2^63 - 1, got -1\n"
