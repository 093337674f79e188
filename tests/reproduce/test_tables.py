"""`ham reproduce` on the shipped models: what it prints and what it leaves."""

from __future__ import annotations

import json

import pytest

from ham.cli import main
from ham.core.errors import InputError
from ham.reproduce import exact, tables
from ham.reproduce.document import time_table
from ham.reproduce.publish import command
from ham.runs import RunFolder, load, shipped
from settings import run_with


def test_a_cell_of_the_table_with_all_its_files(tmp_path, capsys):
    cell = ["--task", "reverse", "--model", "lstm+ham", "--backend", "auto"]
    assert main(["reproduce", *cell, "--examples", "30", "--seed", "3", "--out", str(tmp_path)]) == 0
    assert "paper 0%" in capsys.readouterr().out
    results = json.loads((tmp_path / "results.json").read_text())
    test, longer = results["cells"]
    assert results["seed"] == 3
    assert (test["model"], test["task"], test["split"], test["leaves"]) == ("lstm+ham", "reverse", "test", 32)
    assert (longer["split"], longer["leaves"], longer["examples"]) == ("generalisation", 128, 30)
    hard = results["hard_cases"]
    assert {row["leaves"] for row in hard} == {32, 128, 1024}
    assert {row["asked"] for row in hard} == {20}
    assert "Hard cases" in (tmp_path / "tables.md").read_text()
    assert test["error"] == 100 * test["wrong"] / test["examples"]
    assert "| reverse |" in (tmp_path / "tables.md").read_text()
    assert "\nreverse & " in (tmp_path / "tables.tex").read_text()
    page = (tmp_path / "index.html").read_text()
    for file in ("error_by_size-reverse.svg", "learning-reverse.svg", "page.html"):
        assert file in page
        assert (tmp_path / file).stat().st_size > 1000


def test_the_same_seed_gives_the_same_cells():
    pairs = tables.wanted(task="stack", model="raw-ham")
    first, again, other = (
        [cell for _, _, cell in tables.cells(pairs, tables.shipped_models(), examples=20, seed=seed)]
        for seed in (1, 1, 2)
    )
    assert first == again
    assert [cell.leaves for cell in first] == [cell.leaves for cell in other]


def test_the_analysis_figure_alone(tmp_path, capsys):
    assert main(["reproduce", "--figure", "--out", str(tmp_path)]) == 0
    assert "Coordinate" in capsys.readouterr().out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["analysis.png", "analysis.svg"]


def test_a_document_with_every_result(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(exact, "ASKED", {32: 20, 128: 10})
    monkeypatch.setattr(exact, "HARD_ASKED", 2)
    file = tmp_path / "results.md"
    arguments = [
        "--task",
        "stack",
        "--model",
        "raw-ham",
        "--examples",
        "20",
        "--seed",
        "3",
        "--backend",
        "auto",
    ]
    assert main(["reproduce", *arguments, "--document", str(file), "--out", str(tmp_path / "out")]) == 0
    text = file.read_text()
    assert "| raw-ham |" in text
    assert "| stack | 0 of 20 | 0 of 10 |" in text
    assert "| wrong of 2 | 32 leaves | 128 leaves | 1,024 leaves |" in text
    for picture in ("results/length-stack.svg", "results/learning-stack.svg"):
        assert f"({picture})" in text
        assert (tmp_path / picture).stat().st_size > 1000


def test_the_time_to_learn_is_when_the_last_tree_was_first_mastered(tmp_path):
    quick, slow = RunFolder(tmp_path / "quick"), RunFolder(tmp_path / "slow")
    for folder in (quick, slow):
        folder.begin(run_with("sort", leaves=8, batches=300))
    rest = {"phase": "main", "best": True, "bit_error": 0.0, "loss": 1.0, "train_error": 0.0, "entropy": 0.0}
    epochs = [
        {"epoch": epoch, "longest": longest, "error": error, "seconds": 1.0, **rest}
        for epoch, (longest, error) in enumerate([(4, 0.0), (8, 1.5), (8, 1.0), (8, 7.0), (8, 0.0)], 1)
    ]
    quick.write_metrics(epochs)
    slow.write_metrics(epochs[:2])
    table = time_table({"sort": {"lstm+ham": quick, "dham": slow}, "stack": {"raw-ham": quick}})
    assert table[0] == "| task | lstm+ham | dham | raw-ham |"
    assert table[2:] == ["| sort | 900 | not in 600 |  |", "| stack |  |  | 900 |"]


def test_the_document_is_about_shipped_models(tmp_path, capsys):
    assert main(["reproduce", "--train", "--document", str(tmp_path / "results.md")]) == 2
    assert "--document" in capsys.readouterr().err


def test_cells_that_do_not_exist_are_refused():
    with pytest.raises(InputError, match="no cell"):
        tables.wanted(table=2, task="sort")


def test_every_cell_of_the_paper_is_in_a_table():
    assert set(tables.PAPER) <= set(tables.wanted())


@pytest.mark.parametrize("name", shipped())
def test_a_shipped_model_is_what_its_recipe_trains(name):
    assert "config.json" not in command(load(name).run, name)


def test_a_shipped_model_answers_rightly():
    import ham

    assert ham.solve("sort", [(7, 1), (3, 9), (7, 2)]).right
    assert ham.solve("stack", [4, 9, "pop", "pop"]).right
