"""Recipes without their parts: which lines there are, and that the command trains, measures and goes on."""

import pytest

from ham import recipes
from ham.config import changed
from ham.core.errors import InputError
from ham.reproduce import ablation
from ham.runs import RunFolder

SMALL = {
    "data.batches": 2, "data.validation": 4, "data.start": 2, "data.leaves": 4, "data.tallest": 8,
    "model.cells": 4, "model.size": 4, "model.hidden": 4, "schedule.epochs": 2, "schedule.finish": 1,
}  # fmt: skip


@pytest.fixture
def small(monkeypatch):
    tiny = changed(recipes.get("reverse"), SMALL)
    monkeypatch.setattr(ablation.recipes, "get", lambda name: tiny)
    monkeypatch.setattr(ablation, "ASKED", {8: 20})
    monkeypatch.setattr(ablation, "VALIDATED", 20)


def test_a_line_that_a_recipe_does_not_have_is_not_run(tmp_path):
    def lines(task):
        return {job.name.partition(" without ")[2] for job in ablation.jobs([task], [0], tmp_path, None)}

    assert lines("add") == set(ablation.LEFT_OUT)
    assert lines("sort") == set(ablation.LEFT_OUT) - {"one order"}
    assert lines("reverse") == set(ablation.LEFT_OUT) - {"one order", "hard cases"}
    assert "bounds" in lines("stack")


def test_each_line_changes_the_run(tmp_path):
    runs = [job.run for job in ablation.jobs(["add"], [3], tmp_path, 7)]
    assert len(set(map(str, runs))) == len(ablation.LEFT_OUT)
    assert {(run.seed, run.data.batches) for run in runs} == {(3, 7)}
    usual = recipes.get("add")
    most = usual.schedule.trial * usual.data.batches
    given = {run.schedule.trial * 7 for run in runs if run.schedule.trial}
    assert all(most <= batches < most + 7 for batches in given), (
        "shorter epochs do not give up a start sooner"
    )


def test_runs_are_trained_measured_and_not_trained_twice(small, tmp_path):
    words = ["reverse", "--seeds", "0", "1", "--out", str(tmp_path / "runs")]
    assert ablation.main([*words, "--document", str(tmp_path / "page.md")]) == 0
    page = (tmp_path / "page.md").read_text()
    assert "## reverse\n\nSeeds 0, 1; epochs of 2 batches.\n" in page
    rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| ")]
    assert [row[0] for row in rows] == [
        "| without",
        *(f"| {name}" for name in ablation.LEFT_OUT if name not in ("one order", "hard cases")),
    ]
    assert all(0 <= int(count) <= 20 for row in rows[1:] for count in row[2].split(", "))
    before = {path: RunFolder(path).metrics() for path in (tmp_path / "runs").iterdir()}
    assert len(before) == 18
    ablation.main([*words, "--document", str(tmp_path / "again.md")])
    assert (tmp_path / "again.md").read_text() == page
    assert {path: RunFolder(path).metrics() for path in before} == before


def test_tables_of_other_tasks_stay(small, tmp_path):
    path = tmp_path / "page.md"
    path.write_text("# Old\n\n## sort\n\nSeeds 0.\n\n| a |\n\n## reverse\n\nStale.\n")
    ablation.main(["reverse", "--seeds", "0", "--out", str(tmp_path / "runs"), "--document", str(path)])
    page = path.read_text()
    assert page.startswith("# What each technique is worth\n")
    assert "\n\n## sort\n\nSeeds 0.\n\n| a |\n\n## reverse\n\nSeeds 0; epochs" in page
    assert "Stale" not in page


def test_another_task_is_refused_with_those_there_are(tmp_path):
    with pytest.raises(
        InputError, match="no recipe with hard attention is named 'sorting'; there are reverse"
    ):
        ablation.jobs(["sorting"], [0], tmp_path, None)
