"""Files from strangers, one trick each: refused with what is wrong, whatever they ask for.

The same at random is in test_fuzz.py; cut, empty and foreign files are in tests/test_runs.py.
"""

from __future__ import annotations

import json
import math
import os
import struct
from dataclasses import asdict

import pytest
import torch

from ham import runs, tasks
from ham.cli import main
from ham.config import Architecture, Data, Phase, Run
from ham.config.checks import LARGEST
from ham.core.errors import InputError
from ham.core.files import LARGEST_TEXT, read_bytes, read_json
from ham.ops.episode import PARTS
from ham.runs import CHECKPOINT, CONFIG, METRICS, STATE, RunFolder, load
from ham.search.plan import Plan, SearchFolder
from ham.search.space import from_file, merged
from ham.train.loop import Epoch, train
from ham.use import solve as solving
from ham.use.trace import Trace
from hostile import DEEP, packed
from settings import run_with

RUN = run_with(
    "reverse",
    Architecture(cells=3, size=3, hidden=3),
    batch=2,
    epochs=2,
    batches=1,
    validation=2,
    start=1,
    leaves=2,
)


@pytest.fixture
def folder(tmp_path):
    """A run that has ended."""
    folder = RunFolder(tmp_path / "run")
    folder.begin(RUN)
    for _ in train(RUN, folder):
        pass
    return folder


@pytest.fixture
def parts(folder):
    """The header of a checkpoint as values, and the bytes behind it."""
    data = (folder.path / CHECKPOINT).read_bytes()
    size = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + size]), data[8 + size :]


def sparse(path, size, data=b""):
    """A file of that size which takes no room on the disk."""
    with path.open("wb") as file:
        file.write(data)
        file.truncate(size)


class TestTooMuch:
    def test_a_huge_checkpoint_is_not_read(self, folder):
        path = folder.path / CHECKPOINT
        sparse(path, 1 << 40, path.read_bytes())
        with pytest.raises(InputError, match=r"has 1,099,511,627,776 bytes; at most 1,073,741,824 are read"):
            load(folder.path)

    @pytest.mark.parametrize("name", [CONFIG, METRICS])
    def test_a_huge_text_is_not_read(self, folder, name):
        sparse(folder.path / name, LARGEST_TEXT + 1)
        with pytest.raises(InputError, match=f"{name} has .* bytes"):
            folder.run() if name == CONFIG else folder.metrics()

    def test_huge_questions_are_not_read(self, tmp_path, capsys):
        sparse(tmp_path / "questions.txt", 1 << 40)
        assert main(["solve", "sort", "--file", str(tmp_path / "questions.txt")]) == 2
        assert "questions.txt, line 1: it has more than 16,777,216 bytes" in capsys.readouterr().err
        (tmp_path / "questions.csv").write_bytes(b'"1:1\n",' * (1 << 22))
        assert main(["solve", "sort", "--file", str(tmp_path / "questions.csv")]) == 2
        assert "the question has more than 16,777,216 characters" in capsys.readouterr().err

    def test_many_questions_are_answered_as_they_come(self, tmp_path, monkeypatch, capsys):
        answered = []
        real = solving.solve_all
        monkeypatch.setattr(
            solving,
            "solve_all",
            lambda *given, **more: answered.append(len(given[1])) or real(*given, **more),
        )
        (tmp_path / "questions.txt").write_text("1:1\n" * 2500)
        assert main(["solve", "sort", "--file", str(tmp_path / "questions.txt")]) == 0
        assert answered == [1000, 1000, 500]
        assert capsys.readouterr().out.count("\n") == 2500
        (tmp_path / "questions.txt").write_text("1:1\n" * 1001 + "x\n")
        assert main(["solve", "sort", "--file", str(tmp_path / "questions.txt")]) == 2
        said = capsys.readouterr()
        assert said.out.count("\n") == 1000
        assert "line 1002: " in said.err

    @pytest.mark.parametrize("name", [CONFIG, METRICS, STATE, CHECKPOINT])
    def test_what_is_no_ordinary_file_is_not_waited_for(self, folder, name):
        (folder.path / name).unlink()
        os.mkfifo(folder.path / name)
        read = {CONFIG: folder.run, METRICS: folder.metrics, STATE: folder.read_state}
        with pytest.raises(InputError, match="not an ordinary file"):
            read.get(name, lambda: runs.read_tensors(folder.path / CHECKPOINT))()
        (folder.path / name).unlink()
        (folder.path / name).symlink_to("/dev/zero")
        with pytest.raises(InputError, match="not an ordinary file"):
            read.get(name, lambda: runs.read_tensors(folder.path / CHECKPOINT))()

    @pytest.mark.parametrize(
        ("part", "name", "value"),
        [
            ("model", "hidden", 10**9),
            ("model", "every", 10**9),
            ("data", "leaves", 1 << 60),
            ("data", "start", 1 << 40),
            ("data", "batch", 10**12),
        ],
    )
    def test_settings_that_no_machine_can_hold(self, parts, tmp_path, part, name, value):
        header, body = parts
        run = json.loads(header["__metadata__"]["run"])
        run[part][name] = value
        header["__metadata__"]["run"] = json.dumps(run)
        path = tmp_path / "stranger.safetensors"
        path.write_bytes(packed(header, body))
        with pytest.raises(InputError, match=f"{name}.* must be at most|{name}.*larger than"):
            load(path)

    def test_a_state_whose_epoch_is_a_text(self, folder, capsys):
        """Times 2^31 batches it would be a very long one."""
        tensors, progress = folder.read_state()
        many = json.loads(RUN.to_json())
        many["data"]["batches"] = 1 << 31
        (folder.path / CONFIG).write_text(json.dumps(many))
        folder.write_state(folder.run(), tensors, {**progress, "epoch": "x" * 1000})
        assert main(["train", "--resume", str(folder.path)]) == 2
        assert "epoch should be of type int, got 'xxx" in capsys.readouterr().err

    @pytest.mark.parametrize(
        ("model", "data"),
        [
            ({}, {"batch": 65536, "start": 16384, "leaves": 16384}),
            ({"every": 64}, {"batch": 1024, "leaves": 1024}),
            ({"kind": "dham"}, {"batch": 64, "leaves": 1024}),
            ({"kind": "lstm", "cells": 1024}, {"batch": 65536, "leaves": 1024}),
        ],
    )
    def test_products_that_no_machine_can_hold(self, model, data):
        with pytest.raises(
            InputError, match=r"a batch keeps at most 268,435,456 numbers .* lower batch, leaves"
        ):
            Run("sort", Architecture(**model), data=Data(**data))

    def test_a_header_that_is_larger_than_any(self, parts, tmp_path):
        header, body = parts
        path = tmp_path / "stranger.safetensors"
        path.write_bytes(packed(json.dumps(header).encode() + b" " * (1 << 20), body))
        with pytest.raises(InputError, match=r"has a header of 1,0.* bytes; at most 1,048,576 are read"):
            load(path)

    def test_more_seeds_than_can_be_counted(self, capsys):
        assert main(["sweep", "sort", "--seeds", "0:999999999"]) == 2
        assert "a search has 1 to 100,000 trials, got 999,999,999" in capsys.readouterr().err

    def test_more_trials_than_can_be_counted(self, tmp_path):
        search = SearchFolder(tmp_path / "search")
        plan = Plan(RUN, {}, trials=1, seed=0, backend="reference")
        text = plan.to_json().replace('"trials": 1', f'"trials": {10**23}')
        with pytest.raises(InputError, match="a search has 1 to 100,000 trials, got 100,000,000"):
            Plan.from_json(text, str(search.path))

    def test_a_run_can_read_every_record_it_may_write(self):
        longest = Epoch(
            **{"epoch": 100_000, "phase": "finish", "longest": 1 << 20, "best": False},
            **dict.fromkeys(
                "error bit_error loss train_loss train_error entropy gradient learning_rate exploration".split(),
                -1.2345678901234567e-123,
            ),
            train_parts=dict.fromkeys(PARTS, -1.2345678901234567e-123),
            seconds=1234567890.1,
        )
        assert len(json.dumps(asdict(longest)) + "\n") * LARGEST["epochs"] <= LARGEST_TEXT

    def test_a_memory_that_no_machine_can_hold(self):
        with pytest.raises(InputError, match="a memory holds at most 33,554,432 numbers"):
            run_with("sort", Architecture(size=1024), leaves=1 << 20)

    def test_widths_are_compared_before_they_are_allocated(self, parts, tmp_path, monkeypatch):
        header, body = parts
        run = json.loads(header["__metadata__"]["run"])
        run["model"].update(cells=1024, size=1024, hidden=1024)
        header["__metadata__"]["run"] = json.dumps(run)
        (tmp_path / "stranger.safetensors").write_bytes(packed(header, body))
        built = []
        real = Architecture.build

        def build(self, task):
            built.append(model := real(self, task))
            return model

        monkeypatch.setattr(Architecture, "build", build)
        with pytest.raises(InputError, match="should be"):
            load(tmp_path / "stranger.safetensors")
        assert [next(model.parameters()).device.type for model in built] == ["meta"]


class TestLies:
    """Headers that say other than what is there."""

    @pytest.mark.parametrize(
        "change",
        [
            lambda entry: entry.update(data_offsets=[0, 1 << 40]),
            lambda entry: entry.update(data_offsets=[-4, 4]),
            lambda entry: entry.update(data_offsets=[4, 0]),
            lambda entry: entry.update(shape=[1 << 31, 1 << 31]),
            lambda entry: entry.update(shape=[1 << 62, 4]),
            lambda entry: entry.update(shape=[-1]),
            lambda entry: entry.update(shape="x"),
            lambda entry: entry.update(dtype="F64"),
            lambda entry: entry.update(dtype="PICKLE"),
            lambda entry: entry.pop("dtype"),
            lambda entry: entry.update(shape=[0], data_offsets=[0, 0]),
        ],
    )
    def test_about_a_tensor(self, parts, tmp_path, change):
        header, body = parts
        change(header["output.bias"])
        path = tmp_path / "stranger.safetensors"
        path.write_bytes(packed(header, body))
        with pytest.raises(InputError, match=r"stranger\.safetensors") as raised:
            load(path)
        assert "\n" not in str(raised.value)

    def test_about_its_own_length(self, parts, tmp_path):
        header, body = parts
        text = json.dumps(header).encode()
        path = tmp_path / "stranger.safetensors"
        for length in (0, 1, len(text) - 1, len(text) + 1, 1 << 32, (1 << 64) - 1):
            path.write_bytes(struct.pack("<Q", length) + text + body)
            with pytest.raises(InputError, match="is damaged or not a safetensors file"):
                load(path)

    def test_two_tensors_in_one_place(self, parts, tmp_path):
        header, body = parts
        first, second = [name for name in header if name != "__metadata__"][:2]
        header[first]["data_offsets"] = header[second]["data_offsets"]
        (tmp_path / "x.safetensors").write_bytes(packed(header, body))
        with pytest.raises(InputError, match="damaged"):
            load(tmp_path / "x.safetensors")

    def test_two_headers_in_one(self, parts, tmp_path):
        """Whoever reads the first `run` and whoever reads the second must not get different ones."""
        header, body = parts
        text = json.dumps(header)
        twice = text.replace('"format": "2"', '"format": "2", "format": "2"')
        assert twice != text
        (tmp_path / "x.safetensors").write_bytes(packed(twice.encode(), body))
        with pytest.raises(InputError, match=r"x\.safetensors"):
            load(tmp_path / "x.safetensors")

    def test_a_state_of_numbers_that_training_cannot_make(self, folder):
        tensors, progress = folder.read_state()
        open_again = {**progress, "phase": "main", "epoch": 1}
        for name, bad in (("weights", torch.nan), ("mean", torch.inf), ("square", -1.0)):
            folder.write_state(
                folder.run(), {**tensors, name: torch.full_like(tensors[name], bad)}, open_again
            )
            with pytest.raises(InputError, match=f"{name} holds values that training cannot make"):
                list(train(RUN, folder))
        folder.write_state(folder.run(), {**tensors, "mean": tensors["mean"].double()}, open_again)
        with pytest.raises(InputError, match="it has tensors"):
            list(train(RUN, folder))

    @pytest.mark.parametrize(
        "wrong",
        [
            {"epoch": -1}, {"epoch": 1.5}, {"epoch": 10**6}, {"batch": 2}, {"leaves": 3}, {"leaves": 1 << 40},
            {"phase": "party"},
            {"sums": [0.0]}, {"sums": [float("nan")] * 4}, {"best": []}, {"best": ["a", "b", "c"]}, {"adam_steps": -5},
            {"epoch": "x" * 1000}, {"epoch": None}, {"batch": "9"}, {"batch": 1 << 60}, {"phase": ["main"]},
            {"seconds": float("inf")}, {"seconds": "long"}, {"averaged_steps": 10**400},
            {"phase": "done", "epoch": 0}, {"phase_began": 2},
        ],
    )  # fmt: skip
    def test_a_state_that_stands_nowhere(self, folder, wrong):
        tensors, progress = folder.read_state()
        folder.write_state(folder.run(), tensors, {**progress, "phase": "main", "epoch": 1, **wrong})
        with pytest.raises(InputError, match=r"is not of the run in its config|is not the state of a run"):
            list(train(RUN, folder))

    @pytest.mark.parametrize("progress", [[], "done", 3, None])
    def test_a_state_whose_progress_is_something_else(self, folder, progress, capsys, unchecked):
        tensors, _ = folder.read_state()
        folder.write_state(folder.run(), tensors, progress)
        assert main(["train", "--resume", str(folder.path)]) == 2
        assert "is not the state of a run" in capsys.readouterr().err

    def test_a_state_that_is_ahead_of_its_records(self, folder):
        folder.write_metrics(folder.metrics()[:1])
        with pytest.raises(InputError, match="2 epochs were trained, 1 are recorded"):
            list(train(RUN, folder))

    def test_a_record_of_no_phase_does_not_get_into_the_state(self, folder, capsys):
        *others, last = folder.metrics()
        folder.write_metrics([*others, {**last, "phase": "party"}])
        before = {file: file.read_bytes() for file in folder.path.iterdir() if file.is_file()}
        assert main(["train", "--resume", str(folder.path), "--schedule.epochs", "9"]) == 2
        assert "its last epoch is of phase 'party'" in capsys.readouterr().err
        assert {file: file.read_bytes() for file in before} == before

    def test_records_without_a_best(self, folder, capsys):
        folder.write_metrics([{**record, "best": False} for record in folder.metrics()])
        assert main(["train", "--resume", str(folder.path)]) == 2
        assert "is recorded as the best" in capsys.readouterr().err


class TestBombs:
    @pytest.mark.parametrize(
        ("text", "why"),
        [
            ("[" * DEEP, "nested too deeply"),
            ('{"a":' * DEEP, "nested too deeply"),
            ('{"format": 1, "format": 1}', "'format' twice"),
            ('{"format": ' + "1" * 5000 + "}", "4300 digits"),
            ('{"seed": 1e999}', "1e999 is no number that can be used"),
            ('{"seed": NaN}', "NaN is no number"),
            ('{"seed": -Infinity}', "-Infinity is no number"),
            ("\x00", "not valid JSON"),
        ],
    )
    def test_json(self, text, why):
        readers = (
            lambda: Run.from_json(text, "x.json"),
            lambda: Trace.from_json(text, "x.json"),
            lambda: from_file(text, "x.json"),
            lambda: Plan.from_json(text, "x.json"),
            lambda: read_json(text, "x.json"),
        )
        for read in readers:
            with pytest.raises(InputError, match=why) as raised:
                read()
            assert str(raised.value).startswith("x.json")

    def test_numbers_that_are_whole_and_far_too_large(self):
        with pytest.raises(InputError, match="finite number"):
            merged(Run("reverse"), tasks.get("reverse"), {"optimiser.clip": 10**400}, "space.json")

    @pytest.mark.parametrize("name", ["epoch", "longest"])
    def test_records_with_numbers_beyond_all_bounds(self, folder, name, capsys):
        records = folder.metrics()
        folder.write_metrics([{**record, name: 10**400} for record in records])
        for words in (["train", "--resume"], ["plot"]):
            assert main([*words, str(folder.path)]) == 2
            assert f"{name} should lie in 0 … 2^53, got 1000" in capsys.readouterr().err

    @pytest.mark.parametrize("value", [1e308, -1.0, math.nan])
    @pytest.mark.parametrize("name", ["error", "bit_error", "train_error", "entropy"])
    def test_records_with_shares_that_are_none(self, folder, name, value, capsys):
        folder.write_metrics([{**record, name: value} for record in folder.metrics()])
        assert main(["plot", str(folder.path)]) == 2
        said = capsys.readouterr().err
        assert f"{name} should lie in 0 … 1" in said
        assert said.count("\n") == 1

    def test_a_decay_that_grows(self):
        with pytest.raises(InputError, match=r"exploration_decay must lie in 0 … 1, got 1e\+200"):
            Phase(exploration_decay=1e200)

    @pytest.mark.parametrize(
        "words",
        [
            ["evaluate", "sort", "--leaves", str(1 << 62)],
            ["solve", "sort", "1:1", "--leaves", str(1 << 62)],
            ["trace", "sort", "1:1", "--leaves", str(1 << 62)],
            ["evaluate", "sort", "--threads", str(1 << 31)],
            ["evaluate", "sort", "--leaves", "-1"],
            ["evaluate", "sort", "--seed", "-1"],
            ["reproduce", "--task", "sort", "--seed", "-1"],
            ["evaluate", "sort", "--seed", str(10**400)],
            ["train", "reverse", "--seed", "-1"],
            ["bench", "--sizes", str(1 << 62)],
            ["reproduce", "--train", "--seeds", str(10**12)],
            ["tune", "reverse", "--workers", str(10**12)],
            ["sweep", "reverse", "--cores", str(10**400)],
            ["tune", "reverse", "--seed", "-1"],
            ["train", "reverse", "--main.exploration-decay", "1e200"],
            ["train", "reverse", "--model.top", "1e300"],
            ["train", "reverse", "--model.cell-bound", "1e300"],
            ["sweep", "reverse", "--set", "data.mix=" + "[" * 100_000],
        ],
    )
    def test_numbers_on_the_command_line(self, words, capsys):
        assert main(words) == 2
        said = capsys.readouterr().err
        assert said.startswith("ham: ")
        assert said.count("\n") == 1

    def test_records_nested_too_deeply(self, folder):
        (folder.path / METRICS).write_text("[" * DEEP + "\n")
        with pytest.raises(InputError, match="line 1 is not valid JSON: it is nested too deeply"):
            folder.metrics()


class TestCode:
    """A file from a stranger never makes code run."""

    @pytest.fixture
    def evil(self, tmp_path):
        file, ran = tmp_path / "evil.py", tmp_path / "ran"
        file.write_text(
            f"import pathlib\npathlib.Path({str(ran)!r}).touch()\n"
            "from ham.tasks.reverse import Reverse\nclass Evil(Reverse):\n    name = 'evil'\n"
        )
        yield f"{file}:Evil"
        assert not ran.exists()

    def refused(self, capsys, *words):
        assert main([str(word) for word in words]) == 2
        said = capsys.readouterr().err
        assert said.count("\n") == 1
        assert "to use it runs that file's code: if you trust it, give the task too" in said

    def test_not_by_a_run_that_is_resumed(self, folder, evil, capsys):
        settings = json.loads((folder.path / CONFIG).read_text()) | {"task": evil}
        (folder.path / CONFIG).write_text(json.dumps(settings))
        self.refused(capsys, "train", "--resume", folder.path)

    def test_not_by_a_recipe(self, folder, evil, capsys, tmp_path):
        settings = json.loads((folder.path / CONFIG).read_text()) | {"task": evil}
        (tmp_path / "recipe.json").write_text(json.dumps(settings))
        self.refused(capsys, "train", "--recipe", tmp_path / "recipe.json", "--out", tmp_path / "out")
        self.refused(capsys, "sweep", tmp_path / "recipe.json", "--out", tmp_path / "out")
        assert not (tmp_path / "out").exists()

    def test_not_by_a_search(self, evil, capsys, tmp_path):
        search = SearchFolder(tmp_path / "search")
        search.begin(Plan(Run(evil), {}, trials=1, seed=0, backend="reference"))
        self.refused(capsys, "tune", "--resume", search.path)

    def test_not_by_a_checkpoint(self, parts, evil, capsys, tmp_path):
        header, body = parts
        run = json.loads(header["__metadata__"]["run"]) | {"task": evil}
        header["__metadata__"]["run"] = json.dumps(run)
        path = tmp_path / "stranger.safetensors"
        path.write_bytes(packed(header, body))
        self.refused(capsys, "evaluate", path)

    @pytest.mark.parametrize("task", ["../evil", "ham.runs", "os", "/etc/passwd", "evil.py", "\x00", ""])
    def test_not_by_a_name(self, parts, capsys, tmp_path, task):
        header, body = parts
        run = json.loads(header["__metadata__"]["run"]) | {"task": task}
        header["__metadata__"]["run"] = json.dumps(run)
        path = tmp_path / "stranger.safetensors"
        path.write_bytes(packed(header, body))
        assert main(["evaluate", str(path)]) == 2
        assert "no task is named" in capsys.readouterr().err


@pytest.mark.parametrize(
    "name",
    [
        "x" * 5000,
        "a/" * 3000,
        "\x00",
        "..",
        "/",
        "",
        "\n",
        "~",
        "no\udcffname",
        "/proc/self/mem",
        "/dev/null",
    ],
)
def test_names_that_are_no_models(name, capsys):
    """As names of models, of files of questions, of run folders and of recipes."""
    for words in (
        ["evaluate", name], ["solve", "sort", "--file", name], ["train", "--resume", name],
        ["train", "--recipe", name], ["solve", "sort", "1:1", "--model", name or "/"],
    ):  # fmt: skip
        assert main(words) == 2
        assert capsys.readouterr().err.count("\n") == 1


def test_a_model_of_another_task_is_not_asked(folder, capsys):
    assert main(["solve", "sort", "1:1", "--model", str(folder.path)]) == 2
    assert "was trained on reverse, not on sort" in capsys.readouterr().err
    assert main(["evaluate", str(folder.path), "--task", "stack"]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_bytes_are_counted_before_they_are_read(tmp_path):
    (tmp_path / "x").write_bytes(bytes(11))
    assert read_bytes(tmp_path / "x", 11) == bytes(11)
    with pytest.raises(InputError, match="has 11 bytes; at most 10 are read"):
        read_bytes(tmp_path / "x", 10)


class TestLinks:
    """A folder's links lead nowhere."""

    @pytest.mark.parametrize("name", [".lock", STATE, METRICS, CHECKPOINT])
    def test_a_file_outside_is_not_changed(self, folder, tmp_path, capsys, name):
        tensors, progress = folder.read_state()
        folder.write_state(folder.run(), tensors, {**progress, "phase": "main"})
        longer = json.loads(RUN.to_json())
        longer["schedule"]["epochs"] = 3
        (folder.path / CONFIG).write_text(json.dumps(longer))
        outside = tmp_path / "thesis"
        was = (folder.path / name).read_bytes() or b"years of work"
        outside.write_bytes(was)
        (folder.path / name).unlink()
        (folder.path / name).symlink_to(outside)
        code = main(["train", "--resume", str(folder.path), "--backend", "reference"])
        said = capsys.readouterr().err
        # A run that finds no better weights has no new checkpoint to write.
        assert (code, said.count("\n")) == (2, 1) or (code, name) == (0, CHECKPOINT)
        assert outside.read_bytes() == was

    def test_a_pipe_as_lock_is_not_waited_for(self, folder, capsys):
        (folder.path / ".lock").unlink()
        os.mkfifo(folder.path / ".lock")
        assert main(["train", "--resume", str(folder.path)]) == 2
        assert ".lock is not an ordinary file" in capsys.readouterr().err


def test_a_suggested_command_quotes_what_it_repeats(parts, tmp_path, capsys):
    header, body = parts
    run = json.loads(header["__metadata__"]["run"]) | {"task": "$(touch ran).py:X"}
    header["__metadata__"]["run"] = json.dumps(run)
    path = tmp_path / "stranger.safetensors"
    path.write_bytes(packed(header, body))
    assert main(["evaluate", str(path)]) == 2
    assert "give the task too (--task '$(touch ran).py:X')" in capsys.readouterr().err


def test_what_a_finished_run_suggests_can_be_pasted(folder, tmp_path, capsys):
    odd = tmp_path / "a $(touch ran)\x1b[31m"
    folder.path.rename(odd)
    assert main(["train", "--resume", str(odd), "--backend", "reference"]) == 0
    said = capsys.readouterr().out
    assert said.endswith(f"ham evaluate $'{tmp_path}/a $(touch ran)\\u001b[31m'\n")
