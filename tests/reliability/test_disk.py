"""Full disks, folders that may not be written, and two runs in one folder: one line, nothing lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest
import torch

from ham import runs
from ham.cli import main
from ham.config import Architecture
from ham.runs import CHECKPOINT, CONFIG, METRICS, STATE, RunFolder
from settings import run_with

RUN = run_with(
    "reverse",
    Architecture(cells=8, size=8, hidden=8),
    batch=4,
    epochs=2,
    batches=2,
    validation=8,
    start=2,
    leaves=2,
)


@pytest.fixture
def ham(capsys):
    """Runs a command: exit code, what it printed, what it complained."""

    def run(*words):
        capsys.readouterr()
        code = main([str(word) for word in words])
        return (code, *capsys.readouterr())

    return run


def mounted(path: Path, options: str) -> bool:
    path.mkdir(exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(path)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.fixture
def small_disk(tmp_path):
    """A disk of 300 kB."""
    disk = tmp_path / "disk"
    if not mounted(disk, "size=300k"):
        pytest.skip("mounting a small disk is not allowed here")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


@pytest.fixture
def begun(ham, tmp_path):
    """Makes a run that has trained two epochs of five."""

    def make(path):
        recipe = tmp_path / "recipe.json"
        recipe.write_text(RUN.to_json())
        assert ham("train", "--recipe", recipe, "--out", path)[0] == 0
        longer = json.loads(RUN.to_json())
        longer["schedule"]["epochs"] = 5
        (path / CONFIG).write_text(json.dumps(longer))
        # As it would stand had the longer run been killed here.
        tensors, progress = RunFolder(path).read_state()
        RunFolder(path).write_state(RunFolder(path).run(), tensors, {**progress, "phase": "main"})
        return path

    return make


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def refused(result, *words):
    code, _, complaint = result
    assert code == 2
    assert complaint.startswith("ham: ")
    assert complaint.count("\n") == 1
    for word in words:
        assert str(word) in complaint
    return True


class TestFullDisk:
    def test_the_last_good_state_stays_and_the_run_can_go_on(self, ham, small_disk, begun, tmp_path):
        folder, spared = begun(small_disk / "run"), begun(tmp_path / "spared")
        before = contents(folder)
        filler = small_disk / "filler"
        with suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(512))
        assert refused(ham("train", "--resume", folder), "cannot write", "No space left on device")
        assert contents(folder) == before
        assert runs.load(folder).run.task == "reverse"

        filler.unlink()
        assert ham("train", "--resume", folder)[0] == ham("train", "--resume", spared)[0] == 0
        ours, theirs = (RunFolder(path).read_state()[0] for path in (folder, spared))
        assert all(torch.equal(ours[name], theirs[name]) for name in theirs)

    def test_a_run_that_cannot_begin_says_so(self, ham, small_disk, tmp_path):
        (small_disk / "filler").write_bytes(bytes(300 * 1024))
        assert refused(ham("train", "reverse", "--out", small_disk / "run"), "No space left on device")

    def test_output_that_cannot_be_written(self):
        """Standard output on a full disk."""
        with open("/dev/full", "w") as full:
            done = subprocess.run(
                [sys.executable, "-m", "ham", "tasks"], stdout=full, stderr=-1, text=True, check=False
            )
        assert (done.returncode, done.stderr) == (
            2,
            "ham: cannot write the output: No space left on device\n",
        )


def test_a_read_only_disk(ham, small_disk, begun):
    folder = begun(small_disk / "run")
    before = contents(folder)
    assert subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=False).returncode == 0
    try:
        assert refused(ham("train", "--resume", folder), folder, "Read-only file system")
        assert refused(ham("train", "reverse", "--out", small_disk / "new"), "Read-only file system")
        assert contents(folder) == before
        assert ham("evaluate", folder, "--examples", 5, "--leaves", 2)[0] == 0, "reading needs no writing"
    finally:
        subprocess.run(["mount", "-o", "remount,rw", str(small_disk)], check=True)


def as_nobody(*commands: list) -> list[tuple[int, str]]:
    """Run commands without the power of root, to whom no file is closed: exit codes and complaints."""
    code = (
        "import io, json, os, sys\n"
        "from contextlib import redirect_stderr, redirect_stdout\n"
        "from ham.cli import main\n"
        "import ham.cli.train, ham.cli.evaluate, ham.train.loop, ham.runs, ham.cli.terminal\n"
        "import ham.tasks.reverse, ham.use.evaluate\n"
        "if os.getuid() == 0: os.setgroups([]), os.setgid(65534), os.setuid(65534)\n"
        "results = []\n"
        "for words in json.loads(sys.argv[1]):\n"
        "    said = io.StringIO()\n"
        "    with redirect_stderr(said), redirect_stdout(io.StringIO()): code = main(words)\n"
        "    results.append((code, said.getvalue()))\n"
        "print(json.dumps(results))\n"
    )
    text = json.dumps([[str(word) for word in words] for words in commands])
    environment = {**os.environ, "HAM_BACKEND": "reference"}
    done = subprocess.run([sys.executable, "-c", code, text], stdout=-1, env=environment, check=True)
    return json.loads(done.stdout)


def test_missing_permission(begun):
    # Not under pytest's own folder: nobody else may enter that.
    with tempfile.TemporaryDirectory() as place:
        here = Path(place)
        here.chmod(0o755)
        names = ("closed", "unreadable", "inside")
        folders = {name: begun(here / name) for name in names}
        (folders["closed"] / ".lock").unlink()
        folders["closed"].chmod(0o555)
        for file in (CONFIG, STATE, CHECKPOINT):
            (folders["unreadable"] / file).chmod(0)
        folders["inside"].chmod(0)
        before = {name: contents(folder) for name, folder in folders.items()}
        found = as_nobody(
            ["train", "--resume", folders["closed"]],
            ["train", "reverse", "--out", here / "new"],
            ["train", "--resume", folders["unreadable"]],
            ["evaluate", folders["unreadable"]],
            ["train", "--resume", folders["inside"]],
            ["train", "reverse", "--out", folders["inside"]],
            ["evaluate", folders["inside"]],
        )
        for code, complaint in found:
            assert refused((code, "", complaint), "Permission denied", here)
        assert {name: contents(folder) for name, folder in folders.items()} == before
        assert not (here / "new").exists()
        assert (folders["closed"] / METRICS).is_file()


def test_a_file_may_not_grow_further(begun, tmp_path):
    """The system's own limit on the size of files, as on quotas."""
    folder = begun(tmp_path / "run")
    before = contents(folder)
    code = (
        "import resource, sys\nfrom ham.cli import main\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))\nsys.exit(main(sys.argv[1:]))"
    )
    words = ["train", "--resume", str(folder), "--backend", "reference"]
    done = subprocess.run([sys.executable, "-c", code, *words], stdout=-1, stderr=-1, text=True, check=False)
    assert refused((done.returncode, done.stdout, done.stderr), "cannot write", "File too large")
    assert contents(folder) == before


def test_of_two_runs_begun_at_once_in_one_folder_one_is_refused(tmp_path):
    """Both start before either has written anything; what is there in the end is of one run."""
    recipe = tmp_path / "recipe.json"
    recipe.write_text(RUN.to_json())
    words = [sys.executable, "-m", "ham", "train", "--recipe", recipe, "--out", tmp_path / "run"]
    both = [
        subprocess.Popen(
            [*map(str, words), "--seed", str(seed), "--schedule.epochs", "40"],
            stdout=-1,
            stderr=-1,
            text=True,
            env={**os.environ, "HAM_BACKEND": "reference"},
        )
        for seed in (1, 2)
    ]
    ends = [(*process.communicate(), process.returncode) for process in both]
    codes = [code for _, _, code in ends]
    assert sorted(codes) == [0, 2], ends
    loser = ends[codes.index(2)][1]
    assert loser.count("\n") == 1
    assert "another process is training in" in loser or "already holds a run" in loser
    assert RunFolder(tmp_path / "run").run().seed == codes.index(0) + 1
    assert runs.load(tmp_path / "run").run.seed == codes.index(0) + 1
