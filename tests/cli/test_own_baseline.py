"""`--objective.baseline file.py:function`: trained with, and never run for who did not name the file."""

import pytest

from ham.cli import main
from ham.runs import RunFolder, load

SMALL = (
    "--data.start 2 --data.leaves 4 --data.batches 3 --data.validation 4 --data.threshold 1 --data.batch 4"
)
SMALL += (
    " --data.runs 2 --schedule.finish 0 --schedule.epochs 2 --model.size 4 --model.hidden 4 --model.cells 4"
)


@pytest.fixture
def mine(tmp_path):
    path, ran = tmp_path / "own.py", tmp_path / "ran"
    path.write_text(
        f"from pathlib import Path\nPath({str(ran)!r}).touch()\n"
        "def mine(outcomes):\n    return outcomes.returns - outcomes.returns.mean(0)\n"
    )
    return f"{path}:mine", ran


def train(*words):
    return main(["train", *map(str, words)])


def test_a_run_with_a_baseline_of_ones_own(tmp_path, mine, capsys):
    name, ran = mine
    folder = tmp_path / "run"
    assert train("reverse", "--out", folder, "--objective.baseline", name, *SMALL.split()) == 0
    assert RunFolder(folder).run().objective.baseline == name
    ran.unlink()
    assert load(folder).run.objective.baseline == name
    assert train("--resume", folder) == 2
    assert f"give the baseline too (--baseline {name})" in capsys.readouterr().err
    config = folder / "config.json"
    assert train("reverse", "--recipe", config, "--out", tmp_path / "other") == 2
    assert "give the baseline too (--objective.baseline" in capsys.readouterr().err
    assert not ran.exists(), "nobody asked for the file's code"
    assert train("--resume", folder, "--baseline", name) == 0
    assert ran.exists()


def test_refusals(tmp_path, mine, capsys):
    folder = tmp_path / "run"
    for baseline, complaint in {
        "mean": "no baseline is named 'mean'",
        "absent.py:mine": "there is no file absent.py",
        mine[0] + "r": "has no function miner",
    }.items():
        assert train("reverse", "--out", folder, "--objective.baseline", baseline) == 2
        assert complaint in capsys.readouterr().err
    assert not folder.exists()
    assert train("reverse", "--out", folder, *SMALL.split()) == 0
    assert train("--resume", folder, "--baseline", mine[0]) == 2
    assert "is of leave-one-out: --baseline is for a baseline in a file" in capsys.readouterr().err
