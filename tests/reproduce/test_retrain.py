"""`ham reproduce --train`: runs side by side, stopped and gone on with."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from ham.config import Architecture, changed
from ham.core.errors import InputError
from ham.reproduce import retrain
from ham.reproduce.retrain import Job
from ham.runs import STATE, RunFolder
from settings import run_with

TINY = run_with(
    "reverse",
    Architecture(cells=4, size=4, hidden=4),
    batch=4,
    epochs=2,
    batches=5,
    validation=20,
    start=2,
    leaves=4,
)


def jobs(folder, seeds=(0, 1)):
    return [Job("reverse", replace(TINY, seed=seed), folder / f"reverse-{seed}") for seed in seeds]


def test_all_runs_are_trained_and_are_done(tmp_path):
    todo = jobs(tmp_path)
    ended = {job.run.seed for job, _ in retrain.train_all(todo, workers=2)}
    assert ended == {0, 1}
    assert all(job.done for job in todo)


def test_a_stopped_run_goes_on(tmp_path):
    from contextlib import closing

    from ham.train.loop import Epoch, train

    (job,) = jobs(tmp_path, seeds=(3,))
    job.begin()
    with closing(train(job.run, RunFolder(job.path))) as events:
        next(event for event in events if isinstance(event, Epoch))
    assert job.progress["epoch"] == 1
    assert not job.done
    list(retrain.train_all([job], workers=1))
    assert [record["epoch"] for record in RunFolder(job.path).metrics()] == [1, 2]


def test_a_folder_with_another_run_is_refused(tmp_path):
    (job,) = jobs(tmp_path, seeds=(0,))
    replace(job, run=replace(TINY, seed=9)).begin()
    with pytest.raises(InputError, match="another run"):
        list(retrain.train_all([job], workers=1))


def test_a_run_that_fails_says_why(tmp_path):
    (job,) = jobs(tmp_path, seeds=(0,))
    job.begin()
    (job.path / "state.safetensors").write_bytes(b"not a state")
    with pytest.raises(InputError, match="seed 0 failed: ham: "):
        list(retrain.train_all([job], workers=1))


@pytest.mark.parametrize(
    "make", [lambda log, outside: log.symlink_to(outside), lambda log, _: os.mkfifo(log)]
)
def test_a_log_that_is_no_ordinary_file_is_refused(tmp_path, make):
    outside = tmp_path / "thesis"
    outside.write_text("years of work")
    (job,) = jobs(tmp_path, seeds=(0,))
    job.begin()
    make(job.path / retrain.LOG, outside)
    with pytest.raises(InputError, match=r"log\.txt is not an ordinary file"):
        list(retrain.train_all([job], workers=1))
    assert outside.read_text() == "years of work"


def test_a_folder_that_is_a_link_is_refused(tmp_path):
    (job,) = jobs(tmp_path, seeds=(0,))
    (tmp_path / "elsewhere").mkdir()
    job.path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="reverse-0 is a link, and none is written through"):
        list(retrain.train_all([job], workers=1))
    assert not list((tmp_path / "elsewhere").iterdir())


def test_the_estimate_counts_what_is_left_and_names_what_is_unknown(monkeypatch, tmp_path):
    monkeypatch.setattr(retrain, "slowness", lambda: 2.0)
    sort = RunFolder(retrain.PRETRAINED / "sort").metrics()[-1]["seconds"]
    known = Job("sort", TINY, tmp_path / "sort-0")
    unknown = Job("no such model", TINY, tmp_path / "unknown")
    seconds, unknown_names = retrain.estimate([known, known, unknown], workers=1)
    assert seconds == pytest.approx(4 * sort)
    assert unknown_names == ["no such model"]


DRIVER = """
import sys
from dataclasses import replace
from pathlib import Path
from ham.config import Run
from ham.reproduce.retrain import Job, train_all
path = Path(sys.argv[1])
run = Run.from_json((path / "run.json").read_text(), "run.json")
for _ in train_all([Job("reverse", run, path / "run")], workers=1):
    print("done")
"""


def driver(folder: Path) -> subprocess.Popen:
    """What `ham reproduce --train` does for one run, in a process and from a folder of its own."""
    (folder / "run.json").write_text(LONG.to_json())
    environment = {**os.environ, "HAM_BACKEND": "reference"}
    words = [sys.executable, "-P", "-c", DRIVER, str(folder)]
    return subprocess.Popen(words, stdout=-1, stderr=-1, text=True, env=environment, cwd=folder)


LONG = changed(TINY, {"schedule.epochs": 20, "data.batches": 20})
"""Some seconds, of which most are left after the first state."""


def words_of_all_processes() -> list[bytes]:
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(file.read_bytes())
        except OSError:
            continue
    return found


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL, signal.SIGINT])
def test_a_command_that_is_killed_leaves_no_run_behind_and_goes_on(tmp_path, end):
    first = driver(tmp_path)
    until = time.monotonic() + 120
    while not (tmp_path / "run" / STATE).exists() and time.monotonic() < until:
        time.sleep(0.05)
    first.send_signal(end)
    first.communicate()
    second = driver(tmp_path)
    said = second.communicate(timeout=120)
    assert (second.returncode, said[0]) == (0, "done\n"), said
    assert [record["epoch"] for record in RunFolder(tmp_path / "run").metrics()] == list(range(1, 21))
    assert not any(os.fsencode(tmp_path) in words for words in words_of_all_processes())


def test_no_module_of_the_current_folder_is_run(tmp_path):
    for module in ("rich", "torch", "json", "ham"):
        (tmp_path / f"{module}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    process = driver(tmp_path)
    said = process.communicate(timeout=120)
    assert (process.returncode, said[0]) == (0, "done\n"), said
    assert not (tmp_path / "ran").exists()
