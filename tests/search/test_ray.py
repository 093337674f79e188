"""Searches on real Ray: on this machine, on a cluster that loses a node, with a driver that dies.

Run them alone with `pytest -m ray`. Each driver is a process of its own, as for a user. Most of the
time is Ray's own: a node takes some seconds to start.
"""

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ham import cli
from ham.config import Architecture, Run
from ham.core.errors import InputError
from ham.runs import read_tensors
from ham.search.plan import Plan, SearchFolder, TrialFolder, outcomes
from settings import run_with

pytest.importorskip("ray.tune")
pytestmark = [
    pytest.mark.ray,
    pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning"),
    pytest.mark.usefixtures("environment_as_it_was"),
]

PATIENCE = 300
TRIALS = 4
TINY = {
    "data.batches": 12,
    "data.batch": 8,
    "schedule.epochs": 5,
    "schedule.finish": 1,
    "data.leaves": 4,
    "data.validation": 30,
    "model.size": 5,
    "model.cells": 5,
    "model.hidden": {"choice": [5, 7]},
}
"""Trials of a second or two."""


@pytest.fixture(scope="module")
def space(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("space") / "space.json"
    path.write_text(json.dumps(TINY))
    return path


@pytest.fixture(scope="module")
def alone(tmp_path_factory, space) -> tuple[Path, subprocess.CompletedProcess]:
    """A search by one worker on this machine."""
    folder = tmp_path_factory.mktemp("alone") / "search"
    (folder / "ray").mkdir(parents=True)
    (folder / "ray" / "thesis").write_text("years of work")
    return folder, finished(tune(folder, "--space", space, "--workers", 1))


def test_a_search_on_this_machine_ends_with_a_report(alone):
    folder, done = alone
    assert done.returncode == 0, done.stderr
    found = results(folder)
    assert [trial["number"] for trial in found["trials"]] == list(range(TRIALS))
    assert all(trial["status"] in ("finished", "stopped") for trial in found["trials"])
    assert found["summary"]["finished"] >= 1
    assert Run.from_json((folder / "best.json").read_text(), "best.json").task == "reverse"
    page = (folder / "search.md").read_text()
    assert f"Of {TRIALS} trials" in page
    assert (folder / "search.png").stat().st_size > 10_000
    assert "error" in done.stdout
    assert f"{TRIALS} of {TRIALS} trials" in done.stderr
    assert all(line.startswith("trial ") for line in done.stderr.splitlines()), done.stderr
    assert not list(folder.glob(".ham-ray-*"))
    assert (folder / "ray" / "thesis").read_text() == "years of work", "not ours, whatever its name"


def test_the_best_trial_trains_again_to_the_same_bits(alone, tmp_path, capsys):
    folder, _ = alone
    best = max(
        results(folder)["trials"], key=lambda trial: (trial["longest"], -trial["error"], -trial["loss"])
    )
    again = tmp_path / "again"
    assert cli.main(["train", "--recipe", str(folder / "best.json"), "--out", str(again)]) == 0
    assert same_weights(again, folder / "trials" / f"{best['number']:04}")


def test_a_cluster_that_loses_a_node_finishes_every_trial_as_it_was(alone, cluster, space, tmp_path):
    folder = tmp_path / "search"
    driver = tune(folder, "--space", space, "--address", cluster.address, env=cluster.env)
    node = cluster.workers[0]
    number, before = wait_for(lambda: begun_on(node, folder), driver, "a trial to begin on the node")
    node.kill()
    done = finished(driver)

    assert done.returncode == 0, done.stderr
    assert f"trial {number} lost its worker" in done.stderr
    assert all(outcome.ended for outcome in outcomes(SearchFolder(folder), SearchFolder(folder).plan()))
    assert_same_trials(folder, alone[0])
    # Timings and all: what was trained before the node died was not trained again.
    assert metrics(folder, number).startswith(before)


def test_a_search_whose_driver_dies_is_resumed_without_running_a_finished_trial_again(
    alone, cluster, space, tmp_path
):
    folder = tmp_path / "search"
    driver = tune(folder, "--space", space, "--workers", 2)
    over = wait_for(lambda: ended_with_others_open(folder), driver, "the first trial to end")
    driver.kill()
    driver.communicate()
    wait_for(lambda: not any(held(folder, number) for number in range(TRIALS)), None, "its workers to end")
    ended = {number: (metrics(folder, number), touched(folder, number)) for number in over}
    begun = {number: metrics(folder, number) for number in range(TRIALS) if number not in over}

    done = finished(ham("tune", "--resume", folder, "--address", cluster.address, env=cluster.env))
    assert done.returncode == 0, done.stderr
    assert all(trial["status"] in ("finished", "stopped") for trial in results(folder)["trials"])
    for number, before in ended.items():
        assert (metrics(folder, number), touched(folder, number)) == before
        assert f"trial {number}:" not in done.stderr
    for number, before in begun.items():
        assert metrics(folder, number).startswith(before)
    assert_same_trials(folder, alone[0])


def test_a_search_that_runs_out_of_time_leaves_its_trials_open(cluster, space, tmp_path):
    folder = tmp_path / "search"
    words = ("--space", space, "--hours", 1e-4, "--address", cluster.address)
    short = finished(tune(folder, *words, env=cluster.env))
    assert f"not all trials ended; go on with: ham tune --resume {folder}" in short.stderr
    assert results(folder)["summary"]["open"] >= TRIALS - 2


def test_a_sweep_trains_the_recipe_from_every_seed(alone, cluster, tmp_path):
    folder = tmp_path / "sweep"
    recipe = alone[0] / "best.json"
    options = ("--out", folder, "--address", cluster.address, "--success", 100, "--json")
    done = finished(ham("sweep", recipe, "--seeds", "3:5", *options, env=cluster.env))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found == results(folder)
    assert [trial["seed"] for trial in found["trials"]] == [3, 4]
    assert all(trial["status"] == "finished" for trial in found["trials"])
    assert found["summary"]["success_rate"] == 1.0
    errors = [trial["error"] for trial in found["trials"]]
    assert found["summary"]["mean_error"] == pytest.approx(sum(errors) / 2)
    assert (found["summary"]["best_error"], found["summary"]["worst_error"]) == (min(errors), max(errors))
    assert "Of 2 seeds" in (folder / "sweep.md").read_text()


def test_a_trial_that_fails_says_why_and_is_not_tried_in_vain(cluster, space, tmp_path):
    (tmp_path / "broken.py").write_text(BROKEN)
    words = ("--trials", 1, "--space", space, "--out", tmp_path / "search", "--address", cluster.address)
    done = finished(ham("tune", f"{tmp_path / 'broken.py'}:Broken", *words, env=cluster.env))
    assert done.returncode == 1
    assert done.stderr.splitlines()[0] == "trial 0 failed: OSError: no room left"
    assert "Of 1 trials 1 failed." in done.stdout
    assert "| 0 | failed | OSError: no room left |" in (tmp_path / "search" / "search.md").read_text()


def test_nothing_in_the_folder_of_a_search_is_run_and_nobody_may_enter_rays(tmp_path):
    """A stranger's search, resumed from inside: no worker imports what lies there."""
    search = SearchFolder(tmp_path / "search")
    tiny = Architecture(cells=3, size=3, hidden=3)
    base = run_with("reverse", tiny, batch=4, epochs=1, batches=2, validation=4, start=2, leaves=2)
    search.begin(Plan(base, {}, trials=0, seed=0, backend="reference", seeds=(0,)))
    for module in ("torch", "numpy", "rich", "json", "ham"):
        (search.path / f"{module}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    with tempfile.TemporaryDirectory() as short:
        driver = ham("sweep", "--resume", ".", env={"TMPDIR": short}, cwd=search.path, safe=True)
        folder = wait_for(lambda: next(Path(short).glob("ham-*"), None), driver, "Ray's folder")
        # Ray makes its own folder open to all before it puts a session there.
        wait_for(lambda: next(folder.glob("*/session_*"), None), driver, "Ray's session")
        assert folder.stat().st_mode & 0o077 == 0
        done = finished(driver)
        assert done.returncode == 0, done.stderr
        assert not (tmp_path / "ran").exists()
        assert not folder.exists()


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGKILL])
def test_stopped_it_leaves_no_folder_of_rays(stop, space, tmp_path):
    with tempfile.TemporaryDirectory() as short:
        words = ("--trials", TRIALS, "--space", space, "--out", tmp_path / "search")
        driver = ham("tune", "reverse", *words, env={"TMPDIR": short})
        wait_for(lambda: next(tmp_path.glob("search/*"), None), driver, "the search")
        assert list(Path(short).glob("ham-*"))
        driver.send_signal(stop)
        done = finished(driver)
        assert done.returncode == (130 if stop == signal.SIGTERM else -stop), done.stderr
        wait_for(lambda: not list(Path(short).rglob("*")), None, "the end of Ray's folder")


ENV = {"HAM_BACKEND": "reference", "RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}
"""Ray's workers are nice, which on a busy machine would make the tests long."""
STARTED: list[subprocess.Popen] = []


@pytest.fixture(autouse=True)
def nothing_left_running() -> Iterator[None]:
    yield
    while STARTED:
        process = STARTED.pop()
        process.kill()
        process.communicate()


BROKEN = """
from ham.tasks.reverse import Reverse

class Broken(Reverse):
    name = "broken"

    def sample(self, rng, batch, n, lengths):
        raise OSError("no room left")
"""


def ham(
    *words: object, env: dict[str, str] | None = None, cwd: Path | None = None, safe: bool = False
) -> subprocess.Popen:
    """Start `ham`; `safe` as the installed command does, without the current folder on the path."""
    process = subprocess.Popen(
        [sys.executable, *(["-P"] if safe else []), "-m", "ham", *map(str, words)],
        env={**os.environ, **ENV, **(env or {})},
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    STARTED.append(process)
    return process


def tune(folder: Path, *words: object, env: dict[str, str] | None = None) -> subprocess.Popen:
    return ham("tune", "reverse", "--trials", TRIALS, "--seed", 7, "--out", folder, *words, env=env)


def finished(process: subprocess.Popen) -> subprocess.CompletedProcess:
    try:
        out, err = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        raise AssertionError(f"{process.args} took too long and said {process.communicate()}") from None
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def results(folder: Path) -> dict:
    return json.loads((folder / "results.json").read_text())


def metrics(folder: Path, number: int) -> bytes:
    path = folder / "trials" / f"{number:04}" / "metrics.jsonl"
    return path.read_bytes() if path.exists() else b""


def touched(folder: Path, number: int) -> list[tuple[str, int]]:
    """When each of a trial's files was written last."""
    return sorted(
        (path.name, path.stat().st_mtime_ns) for path in (folder / "trials" / f"{number:04}").iterdir()
    )


def same_weights(one: Path, other: Path) -> bool:
    tensors = [read_tensors(folder / "checkpoint.safetensors")[0] for folder in (one, other)]
    return tensors[0].keys() == tensors[1].keys() and all(
        tensors[0][name].numpy().tobytes() == tensors[1][name].numpy().tobytes() for name in tensors[0]
    )


def assert_same_trials(one: Path, other: Path) -> None:
    """The same settings, seeds and epochs, as far as both trained; the same weights if both finished."""
    for number in range(TRIALS):
        folders = [folder / "trials" / f"{number:04}" for folder in (one, other)]
        assert (folders[0] / "config.json").read_bytes() == (folders[1] / "config.json").read_bytes()
        epochs = [
            [timeless(line) for line in metrics(folder, number).splitlines()] for folder in (one, other)
        ]
        common = min(map(len, epochs))
        assert epochs[0][:common] == epochs[1][:common]
        if len(epochs[0]) == len(epochs[1]):
            assert same_weights(*folders)


def timeless(line: bytes) -> dict:
    return {name: value for name, value in json.loads(line).items() if name != "seconds"}


def begun_on(node: "Node", folder: Path) -> tuple[int, bytes] | None:
    """A trial that the node holds and has trained for an epoch, and its metrics so far."""
    for pid in descendants(node.process.pid):
        for path in open_files(pid):
            if path.name == ".lock" and path.parent.parent == folder / "trials":
                number = int(path.parent.name)
                if so_far := metrics(folder, number):
                    return number, so_far
    return None


def ended_with_others_open(folder: Path) -> list[int] | None:
    epochs = [metrics(folder, number).count(b"\n") for number in range(TRIALS)]
    if not any(0 < count < TINY["schedule.epochs"] for count in epochs):  # cheap, for it is asked often
        return None
    found = outcomes(SearchFolder(folder), SearchFolder(folder).plan())
    ended = [outcome.number for outcome in found if outcome.ended]
    begun = [outcome.number for outcome in found if outcome.records and not outcome.ended]
    return ended if ended and begun else None


def held(folder: Path, number: int) -> bool:
    """Whether some process still trains this trial."""
    try:
        with TrialFolder(folder / "trials" / f"{number:04}").locked():
            return False
    except InputError:
        return (folder / "trials" / f"{number:04}").exists()


def wait_for(condition: Callable, process: subprocess.Popen | None, what: str):
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        if found := condition():
            return found
        if process is not None and process.poll() is not None:
            raise AssertionError(f"waiting for {what}, but it ended: {process.communicate()}")
        time.sleep(0.2)
    raise AssertionError(f"waited in vain for {what}")


def descendants(pid: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(entry.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        children.setdefault(parent, []).append(int(entry.parent.name))
    found, left = [], [pid]
    while left:
        found.append(left.pop())
        left += children.get(found[-1], [])
    return found


def open_files(pid: int) -> list[Path]:
    found = []
    for link in Path(f"/proc/{pid}/fd").glob("*"):
        try:
            found.append(link.readlink())
        except OSError:
            continue
    return found


@dataclass
class Node:
    """A node of Ray's: its processes, which are started and killed as one."""

    process: subprocess.Popen

    @classmethod
    def start(cls, words: list[str], env: dict[str, str], log: Path) -> "Node":
        """Start a node and wait until it is up; Ray gives itself half a minute, which a busy machine may miss."""
        for _ in range(3):
            with log.open("w") as file:
                command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", *words]
                node = cls(subprocess.Popen(command, env={**os.environ, **env}, stdout=file, stderr=file))
            while node.process.poll() is None:
                if "Ray runtime started" in log.read_text():
                    return node
                time.sleep(0.1)
            node.kill()
        raise AssertionError(log.read_text())

    def kill(self) -> None:
        """As if the power had gone."""
        for pid in descendants(self.process.pid):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.process.wait()


@dataclass
class Cluster:
    address: str
    env: dict[str, str]
    head: Node
    workers: list[Node]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A head that runs no trial and two worker nodes, each with an address of its own on the loopback."""
    folder = Path(tempfile.mkdtemp(prefix="ray-"))  # short: the paths of Ray's sockets are limited
    with socket.socket() as free:
        free.bind(("127.0.0.2", 0))
        address = f"127.0.0.2:{free.getsockname()[1]}"
    env = {
        **ENV,
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(16),
        # A dead node is noticed after seconds instead of a quarter of a minute.
        "RAY_health_check_period_ms": "1000",
        "RAY_health_check_failure_threshold": "3",
    }
    common = ["--object-store-memory", str(100 << 20)]
    head = ["--head", "--node-ip-address=127.0.0.2", f"--port={address.partition(':')[2]}", "--num-cpus=0"]
    head += ["--include-dashboard=false", f"--temp-dir={folder / 'ray'}"]
    nodes = []
    try:
        nodes.append(Node.start(head + common, env, folder / "head"))
        for place in (3, 4):
            worker = [f"--address={address}", f"--node-ip-address=127.0.0.{place}", "--num-cpus=1"]
            nodes.append(Node.start(worker + common, env, folder / f"worker-{place}"))
        yield Cluster(address, env, nodes[0], nodes[1:])
    finally:
        for node in reversed(nodes):
            node.kill()
        shutil.rmtree(folder, ignore_errors=True)
