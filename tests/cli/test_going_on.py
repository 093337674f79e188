"""Runs that go on: for longer, from another's weights, and not over what is there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from ham.cli import main
from ham.runs import CHECKPOINT, METRICS, STATE, RunFolder

SMALL = "--data.start 2 --data.leaves 4 --data.batches 10 --data.validation 10 --data.batch 8 --data.runs 2".split()
SMALL += "--model.depth 1 --model.size 4 --model.hidden 4 --model.cells 4 --data.threshold 1".split()


def trained(path: Path, *words: object, task: str = "reverse", finish: int = 0) -> Path:
    given = ["train", task, "--out", path, "--schedule.finish", finish, *SMALL, *words]
    assert main(list(map(str, given))) == 0
    return path


def refusal(capsys, *words: object) -> str:
    capsys.readouterr()
    assert main(list(map(str, words))) == 2
    return capsys.readouterr().err


def tensors(path: Path, name: str) -> dict[str, torch.Tensor]:
    return load_file(path / name)


def same(one: Path, other: Path, name: str) -> bool:
    ours, theirs = tensors(one, name), tensors(other, name)
    return all(torch.equal(ours[each], theirs[each]) for each in theirs)


class TestForLonger:
    def test_comes_to_the_same_bits_as_if_it_had_been_asked_for_at_once(self, tmp_path):
        longer = trained(tmp_path / "a", "--schedule.epochs", 2)
        assert main(["train", "--resume", str(longer), "--schedule.epochs", "4"]) == 0
        at_once = trained(tmp_path / "b", "--schedule.epochs", 4)
        assert RunFolder(longer).run() == RunFolder(at_once).run()
        assert same(longer, at_once, STATE)
        assert same(longer, at_once, CHECKPOINT)

    def test_a_run_that_ended_goes_on_in_its_end_phase(self, tmp_path):
        folder = trained(tmp_path / "a", "--schedule.epochs", 3, finish=1)
        assert main(["train", "--resume", str(folder), "--schedule.epochs", "5"]) == 0
        records = RunFolder(folder).metrics()
        assert [record["phase"] for record in records] == ["main", "main", "finish", "finish", "finish"]
        rates = [json.loads(line)["learning_rate"] for line in (folder / METRICS).read_text().splitlines()]
        assert rates[2] > rates[3] > rates[4]  # it does not begin anew
        assert main(["train", "--resume", str(folder), "--schedule.epochs", "6"]) == 0
        assert len(RunFolder(folder).metrics()) == 6

    def test_a_run_that_settled_is_not_settled_any_more(self, tmp_path):
        folder = trained(tmp_path / "a", "--schedule.epochs", 9, "--schedule.patience", 1, "--data.start", 4)
        ended = len(RunFolder(folder).metrics())
        assert ended < 9
        assert main(["train", "--resume", str(folder), "--schedule.epochs", str(ended + 1)]) == 0
        assert len(RunFolder(folder).metrics()) == ended + 1

    def test_no_longer_than_asked(self, tmp_path):
        """A run of one epoch has no end phase; one of two would have begun it by now."""
        folder = trained(tmp_path / "a", "--schedule.epochs", 1, finish=5)
        assert main(["train", "--resume", str(folder), "--schedule.epochs", "2"]) == 0
        assert len(RunFolder(folder).metrics()) == 2

    def test_not_for_less(self, tmp_path, capsys):
        folder = trained(tmp_path / "a", "--schedule.epochs", 2)
        said = refusal(capsys, "train", "--resume", folder, "--schedule.epochs", 2)
        assert "it can go on to 3 or more, not to 2" in said


class TestFromAnother:
    def test_starts_with_its_weights_and_architecture(self, tmp_path):
        first = trained(tmp_path / "a", "--schedule.epochs", 1)
        again = tmp_path / "b"
        words = ["train", "reverse", "--init", first, "--out", again, *SMALL[:12], "--schedule.epochs", 1]
        # A learning rate of almost nothing leaves the weights where they were.
        assert main(list(map(str, [*words, "--main.learning-rate", 1e-12, "--data.threshold", 1]))) == 0
        run = RunFolder(again).run()
        assert run.model == RunFolder(first).run().model
        assert run.init == str((first / CHECKPOINT).absolute())
        theirs, ours = tensors(first, CHECKPOINT), tensors(again, CHECKPOINT)
        assert all(torch.allclose(theirs[name], ours[name], atol=1e-6) for name in theirs)

    def test_a_stopped_run_does_not_need_it_again(self, tmp_path):
        first = trained(tmp_path / "a", "--schedule.epochs", 1)
        again = trained(tmp_path / "b", "--init", first, "--schedule.epochs", 1)
        (first / CHECKPOINT).unlink()
        assert main(["train", "--resume", str(again), "--schedule.epochs", "2"]) == 0

    def test_a_shipped_model_by_its_name(self, tmp_path):
        words = ["--data.batches", 1, "--data.validation", 1, "--schedule.epochs", 1]
        given = ["train", "reverse", "--init", "reverse", "--out", tmp_path / "a", *words]
        assert main(list(map(str, given))) == 0
        assert RunFolder(tmp_path / "a").run().init == "reverse"

    def test_what_the_model_cannot_be_asked_is_left_out(self, tmp_path):
        """Sort's recipe starts controllers anywhere inside a bound, which this model has not."""
        first = trained(tmp_path / "a", "--model.controller", "gru", "--schedule.epochs", 1, task="sort")
        again = trained(tmp_path / "b", "--init", first, "--schedule.epochs", 1, task="sort")
        assert RunFolder(again).run().end.anywhere == 0

    @pytest.mark.parametrize("model", ["add-dham", "add-paper", "add-lstm"])
    def test_nor_what_the_recipe_asks_of_another_kind_of_model(self, tmp_path, model):
        """A tree, or decisions, which not all have."""
        words = ["--data.batches", 1, "--data.validation", 1, "--schedule.epochs", 1]
        given = ["train", "add", "--init", model, "--out", tmp_path / "a", *words]
        assert main(list(map(str, given))) == 0
        run = RunFolder(tmp_path / "a").run()
        assert (run.objective.rightward > 0) == (model == "add-paper")
        assert (run.main.tall > 0, run.objective.pull > 0) == (model != "add-lstm",) * 2

    def test_widths_that_do_not_fit_are_named_and_nothing_is_written(self, tmp_path, capsys):
        first = trained(tmp_path / "a", "--schedule.epochs", 1)
        for words in (["add"], ["reverse", "--model.size", 6]):
            said = refusal(capsys, "train", *words, "--init", first, "--out", tmp_path / "b")
            assert f"cannot start from {(first / CHECKPOINT).absolute()}, whose widths are others" in said
            assert "should be" in said
        assert "neither a run's folder" in refusal(capsys, "train", "sort", "--init", "nosuch")
        assert not (tmp_path / "b").exists()


class TestNotOver:
    def test_a_run_without_its_state_is_left_alone(self, tmp_path, capsys):
        folder = trained(tmp_path / "a", "--schedule.epochs", 1)
        (folder / STATE).unlink()
        before = {path.name: path.read_bytes() for path in folder.iterdir()}
        for words in ([], ["--schedule.epochs", 3]):
            said = refusal(capsys, "train", "--resume", folder, *words)
            assert f"holds a trained model but no {STATE}" in said
            assert f"--init {folder}" in said
        assert before == {path.name: path.read_bytes() for path in folder.iterdir()}

    def test_a_run_that_had_not_begun_begins(self, tmp_path):
        folder = trained(tmp_path / "a", "--schedule.epochs", 1)
        kept = (folder / CHECKPOINT).read_bytes()
        for name in (STATE, CHECKPOINT, METRICS):
            (folder / name).unlink()
        assert main(["train", "--resume", str(folder)]) == 0
        assert (folder / CHECKPOINT).read_bytes() == kept
