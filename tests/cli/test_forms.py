"""Tables for people, spreadsheets, papers and programs, and models side by side."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

import ham
from ham.cli import main

COMMANDS = {
    "evaluate": "evaluate reverse search --leaves 2 --examples 4 --seed 1",
    "stress": "stress reverse --leaves 2 4 --examples 2 --seed 1",
    "tasks": "tasks",
    "doctor": "doctor --no-speed",
}


@pytest.fixture
def printed(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def run(words: str) -> str:
        capsys.readouterr()
        assert main(words.split()) == 0
        return capsys.readouterr().out

    return run


@pytest.mark.parametrize("name", COMMANDS)
def test_every_table_in_every_form(name, printed):
    data = json.loads(printed(f"{COMMANDS[name]} --json"))
    assert data
    rows = list(csv.DictReader(io.StringIO(printed(f"{COMMANDS[name]} --csv"))))
    assert rows
    assert all(None not in row and None not in row.values() for row in rows)
    text = printed(f"{COMMANDS[name]} --latex")
    assert text.count(r"\begin{tabular}") == text.count(r"\end{tabular}") >= 1
    for line in text.splitlines():
        assert line.startswith("%") or not set("→–—Θ·") & set(line)


@pytest.mark.parametrize("name", ["evaluate", "stress", "tasks"])
def test_every_table_fits_the_screen(name, printed, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert max(map(len, printed(COMMANDS[name]).splitlines())) <= 80


def test_a_terminal_of_no_columns_shows_it_all_the_same(printed, monkeypatch):
    for width in ("0", "1", "12"):
        monkeypatch.setenv("COLUMNS", width)
        assert "reverse" in printed("tasks")


def test_only_one_form_at_a_time(capsys):
    assert main(["tasks", "--json", "--csv"]) == 2
    assert "give one of --json, --csv and --latex" in capsys.readouterr().err


@pytest.mark.parametrize("form", ["", "--csv", "--latex"])
def test_the_name_of_a_folder_is_shown_and_not_obeyed(form, printed, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    ham.load("reverse").save_pretrained(tmp_path / "n\x1b[31m\x07")
    text = printed(f"evaluate n\x1b[31m\x07 search --leaves 2 --examples 2 --seed 1 {form}")
    assert "n\ufffd[31m\ufffd" in text
    assert text.replace("\n", "").isprintable()


class TestSideBySide:
    WORDS = "evaluate sort sort-lstm reverse --leaves 4 --examples 5 --seed 3"

    def test_one_table(self, printed):
        title, columns, _, *rows = printed(self.WORDS).splitlines()
        assert title == "test seed 3, 5 examples each"
        assert columns.split()[:2] == ["model", "leaves"]
        assert [row.split()[0] for row in rows] == ["sort", "sort-lstm", "reverse"]
        assert printed(self.WORDS.replace(" reverse", "")).startswith("sort, test seed 3, 5 examples each\n")

    def test_the_same_questions_as_alone(self, printed):
        together = json.loads(printed(f"{self.WORDS} --json"))
        assert "model" not in together
        assert "task" not in together
        assert together["seed"] == 3
        alone = json.loads(printed("evaluate sort-lstm --leaves 4 --examples 5 --seed 3 --json"))
        assert (alone["model"], alone["task"]) == ("sort-lstm", "sort")
        row = together["rows"][1]
        assert row.pop("model") == "sort-lstm"
        for each in (row, alone["rows"][0]):
            del each["seconds"]
        assert alone["rows"] == [row]

    def test_every_record_says_of_which_model_it_is(self, printed):
        rows = list(csv.DictReader(io.StringIO(printed(f"{self.WORDS} --csv"))))
        assert [row["model"] for row in rows] == ["sort", "sort-lstm", "reverse"]
        assert {"error_interval_low", "error_interval_high", "lengths_low"} <= rows[0].keys()


@pytest.mark.parametrize(
    "words",
    [
        "view sort --no-open --out nosuch/page.html",
        "plot RUN --out /dev/null/plots",
        "reproduce --out /dev/null/tables",
        "reproduce --document nosuch/results.md",
        "bench --out /dev/null/docs",
    ],
)
def test_what_cannot_be_written_is_refused_before_the_work(words, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)

    def work(*_, **__):
        raise AssertionError("begun")

    for what in ("ham.cli.engine.prepare", "ham.reproduce.tables.wanted", "ham.cli.chosen.chosen"):
        monkeypatch.setattr(what, work)
    assert main(words.replace("RUN", str(Path("run"))).split()) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not list(tmp_path.iterdir())
