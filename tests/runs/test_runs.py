"""What a run leaves on disk: whole files only, one run a folder, and no surprise when reading."""

import json
import os
import shutil
import struct
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from safetensors.torch import save

from ham import runs, tasks
from ham.config import Architecture, Run
from ham.core.errors import InputError
from ham.core.files import write_whole
from ham.runs import CHECKPOINT, CONFIG, METRICS, STATE, RunFolder, load, save_checkpoint
from ham.train.state import State

RUN = Run("reverse", Architecture(cells=4, size=4, hidden=4))


@pytest.fixture
def weights():
    return RUN.model.build(tasks.get(RUN.task)).state_dict()


@pytest.fixture
def folder(tmp_path, weights):
    folder = RunFolder(tmp_path / "run")
    folder.begin(RUN)
    folder.write_checkpoint(RUN, weights)
    return folder


def test_a_checkpoint_comes_back_as_it_was(folder, weights):
    for name in (folder.path, str(folder.path), folder.path / CHECKPOINT):
        trained = load(name)
        assert trained.run == RUN
        assert trained.task.name == "reverse"
        assert not trained.model.training
        for key, tensor in trained.model.state_dict().items():
            assert torch.equal(tensor, weights[key])


def test_the_same_weights_make_the_same_bytes(folder, weights):
    first = (folder.path / CHECKPOINT).read_bytes()
    for _ in range(5):
        folder.write_checkpoint(RUN, weights)
        assert (folder.path / CHECKPOINT).read_bytes() == first


def test_a_folder_holds_one_run(folder):
    before = (folder.path / CONFIG).read_bytes()
    with pytest.raises(InputError, match="already holds a run; continue it with --resume"):
        folder.begin(Run("sort"))
    assert (folder.path / CONFIG).read_bytes() == before
    assert folder.run() == RUN


def test_one_process_trains_in_a_folder(folder):
    code = f"from ham.runs import RunFolder\nwith RunFolder({str(folder.path)!r}).locked(): pass"
    with folder.locked():
        other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert "another process is training in" in other.stderr
        with pytest.raises(InputError, match="another process"), RunFolder(folder.path).locked():
            pass
    with folder.locked():
        pass


@pytest.mark.parametrize("made_anew", [True, False])
def test_nothing_is_written_into_another_folder_of_the_same_name(folder, made_anew):
    with folder.locked():
        folder.path.rename(folder.path.with_name("elsewhere"))
        if made_anew:
            RunFolder(folder.path).begin(Run("sort"))
        with pytest.raises(InputError, match="was moved or removed while it was trained in"):
            folder.write_config(RUN)
    if made_anew:
        assert folder.run() == Run("sort")


def test_the_lock_goes_with_its_process(folder):
    code = (
        f"import os\nfrom ham.runs import RunFolder\n"
        f"with RunFolder({str(folder.path)!r}).locked(): os._exit(1)"
    )
    subprocess.run([sys.executable, "-c", code], check=False)
    with folder.locked():
        pass


def test_a_write_that_fails_leaves_the_old_file(folder, monkeypatch):
    before = (folder.path / CHECKPOINT).read_bytes()

    def full(_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(InputError, match=r"cannot write .*: No space left on device"):
            write_whole(folder.path / CHECKPOINT, b"half")
    assert (folder.path / CHECKPOINT).read_bytes() == before
    assert {path.name for path in folder.path.iterdir()} == {".lock", CONFIG, CHECKPOINT}


def test_what_a_killed_process_left_is_removed_and_nothing_else(folder):
    others = {f".{CHECKPOINT}.{ending}" for ending in ("swp", "bak", "backup.1", "2026.11.18")}
    for name in (f".{CHECKPOINT}.4711", *others):
        (folder.path / name).touch()
    with folder.locked():
        pass
    left = {path.name for path in folder.path.glob(f".{CHECKPOINT}.*")}
    assert left == others


def test_readers_never_see_half_a_file(folder, monkeypatch):
    """At the moment the new file is complete, the old one is still the one that is found."""
    before = (folder.path / CHECKPOINT).read_bytes()
    seen = []
    monkeypatch.setattr(os, "fsync", lambda _: seen.append((folder.path / CHECKPOINT).read_bytes()))
    write_whole(folder.path / CHECKPOINT, b"new")
    assert seen == [before, b"new"], "the file first, then its folder"
    assert (folder.path / CHECKPOINT).read_bytes() == b"new"


def test_metrics_come_back_and_a_bad_line_is_named(folder):
    assert folder.metrics() == []
    record = {name: kind() for name, kind in runs.RECORD.items()} | {"longest": 4}
    records = [
        record | {"epoch": 1, "error": 50.0},
        record | {"epoch": 2, "error": 0.125, "loss": float("inf")},
    ]
    folder.write_metrics(records)
    assert folder.metrics() == records
    with (folder.path / METRICS).open("a") as file:
        file.write("{oh\n")
    with pytest.raises(InputError, match="line 3 is not valid JSON"):
        folder.metrics()


def test_state_comes_back(folder):
    assert folder.read_state() is None
    tensors = {"weights": torch.randn(5), "mean": torch.zeros(5)}
    standing = {"epoch": 3, "batch": 0, "phase": "main", "seconds": 1.5, "best": [4.0, -float("inf")]}
    folder.write_state(folder.run(), tensors, standing)
    found, progress = folder.read_state()
    assert progress == standing
    assert all(torch.equal(found[name], tensor) for name, tensor in tensors.items())


def header(**metadata):
    text = json.dumps({"__metadata__": metadata}).encode()
    return struct.pack("<Q", len(text)) + text


def spoilt(data):
    middle = len(data) // 2
    return {
        "empty": b"",
        "a few bytes": b"abc",
        "truncated": data[:middle],
        "one byte short": data[:-1],
        "cut in the header": data[:100],
        "text": b"not a checkpoint\n" * 100,
        "zeros": bytes(1000),
        "pickle": b"\x80\x04\x95" + bytes(100),
        "a header of 2^63 bytes": struct.pack("<Q", 1 << 63) + data[8:],
        "a header that is no JSON": struct.pack("<Q", 8) + b"{{{{{{{{",
        "a header that is a list": struct.pack("<Q", 2) + b"[]",
        "no format": header(),
        "another format": header(format="99"),
        "no run": header(format="1"),
        "a run that is no JSON": header(format="1", run="{"),
        "a run of an unknown task": header(format="1", run=Run("juggle").to_json()),
        "no tensors": header(format="1", run=RUN.to_json()),
    }


@pytest.mark.parametrize("how", spoilt(bytes(200)))
def test_a_spoilt_checkpoint_is_refused_in_one_line(folder, how):
    path = folder.path / CHECKPOINT
    data = spoilt(path.read_bytes())[how]
    path.write_bytes(data)
    with pytest.raises(InputError) as raised:
        load(folder.path)
    assert "\n" not in str(raised.value)
    assert str(path) in str(raised.value) or "juggle" in str(raised.value)
    assert path.read_bytes() == data


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda w: w | {"output.bias": torch.zeros(3)}, r"output\.bias is torch\.float32 \(3,\), should be"),
        (lambda w: w | {"output.bias": w["output.bias"].double()}, r"output\.bias is torch\.float64"),
        (lambda w: w | {"extra": torch.zeros(1)}, "has an unknown tensor 'extra'"),
        (lambda w: {k: v for k, v in w.items() if k != "output.bias"}, r"lacks tensor 'output\.bias'"),
        (lambda w: w | {"output.bias": w["output.bias"] * torch.nan}, "not finite"),
    ],
)
def test_tensors_that_do_not_fit_are_named(folder, weights, change, message):
    save_checkpoint(folder.path / CHECKPOINT, RUN, change(weights))
    with pytest.raises(InputError, match=message) as raised:
        load(folder.path)
    assert "\n" not in str(raised.value)


def test_a_file_of_someone_elses_is_no_checkpoint(tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(save({"x": torch.zeros(3)}))
    with pytest.raises(InputError, match="has format None"):
        load(path)


@pytest.mark.parametrize("data", [b"", b"junk" * 100, header(format="1"), header(format="1", progress="{")])
def test_a_spoilt_state_is_refused_in_one_line(folder, data):
    (folder.path / STATE).write_bytes(data)
    with pytest.raises(InputError) as raised:
        folder.read_state()
    assert "\n" not in str(raised.value)


def test_a_spoilt_config_is_refused_in_one_line(folder):
    for data in (b"", b"\xff\xfe", b"{"):
        (folder.path / CONFIG).write_bytes(data)
        with pytest.raises(InputError, match=r"config\.json") as raised:
            folder.run()
        assert "\n" not in str(raised.value)


def test_what_cannot_be_found_is_said(tmp_path):
    with pytest.raises(InputError, match="nowhere is neither a run's folder, nor a checkpoint"):
        runs.find("nowhere")
    with pytest.raises(InputError, match="name is empty"):
        runs.find("")
    with pytest.raises(InputError, match="holds no checkpoint"):
        runs.find(tmp_path)


def test_who_holds_a_folder_can_begin_a_run_in_it_and_nobody_else(tmp_path):
    folder = RunFolder(tmp_path / "run")
    folder.path.mkdir()
    with folder.locked():
        folder.begin(Run("sort"))
        with pytest.raises(InputError, match="another process"), RunFolder(folder.path).locked():
            pass
    with RunFolder(folder.path).locked():
        pass


def test_a_folder_with_what_another_run_left_is_refused(tmp_path):
    for name in (STATE, CHECKPOINT, METRICS):
        (path := tmp_path / name[:3]).mkdir()
        (path / name).touch()
        with pytest.raises(InputError, match=f"holds the {name} of another run, without its config.json"):
            RunFolder(path).begin(RUN)
        assert not (path / CONFIG).exists()


def test_a_state_of_another_run_is_refused(tmp_path):
    """Of the same shape, so that nothing else would tell."""
    one, other = RunFolder(tmp_path / "one"), RunFolder(tmp_path / "other")
    for folder, run in ((one, replace(RUN, seed=1)), (other, replace(RUN, seed=2))):
        folder.begin(run)
        State.of(run, folder)
    shutil.copy(one.path / STATE, other.path)
    with pytest.raises(InputError, match="it was left by one with seed 1, not 2"):
        State.of(other.run(), other)


def test_a_state_is_of_its_run_wherever_the_files_of_its_own_are_by_now(tmp_path):
    task = "from ham.tasks.reverse import Reverse\nclass Own(Reverse): pass\n"
    for place in ("before", "after"):
        (tmp_path / place).mkdir()
        (tmp_path / place / "own.py").write_text(task)
    names = [f"{tmp_path / place / 'own.py'}:Own" for place in ("before", "after")]
    first, moved = (
        replace(RUN, task=name, objective=replace(RUN.objective, baseline=name)) for name in names
    )
    folder = RunFolder(tmp_path / "run")
    folder.begin(first)
    for run in (first, moved, first):
        State.of(run, folder).save(folder)
    folder.write_config(replace(first, task="reverse"))
    with pytest.raises(InputError, match="it was left by one with task"):
        folder.read_state()
