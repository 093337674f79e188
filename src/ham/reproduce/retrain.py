"""All the paper's models trained again from their recipes: `ham reproduce --train`.

Every run is an ordinary `ham train` in a process and a folder of its own, so a stopped one goes on
where it stood, and any number of them run side by side.
"""

from __future__ import annotations

import logging
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ham import recipes
from ham.config import Run, changed
from ham.core.errors import InputError
from ham.core.files import last_line, open_log, require_no_link
from ham.core.processes import guarded
from ham.core.text import visible
from ham.runs import CONFIG, PRETRAINED, RunFolder

_log = logging.getLogger("ham")
LOG = "log.txt"
SECONDS_FOR_THE_LAST_OWNER = 20.0
SECONDS_TO_SAVE = 0.5
"""That a stopped run is waited for; if it takes longer, it goes on saving after this command has ended."""
SECONDS_BETWEEN_LOOKS = 0.2
CALIBRATION = "sort"
"""The recipe whose speed here, against its shipped log, tells how much faster or slower this machine is."""


@dataclass(frozen=True)
class Job:
    """One run to train, and its folder."""

    name: str
    run: Run
    path: Path

    def begin(self) -> None:
        """Make the folder, or make sure that the run that is there is this one."""
        require_no_link(self.path)
        folder = RunFolder(self.path)
        if not (self.path / CONFIG).exists():
            folder.begin(self.run)
        elif folder.run() != self.run:
            raise InputError(f"{self.path} holds another run than recipe {self.name}; move it away")

    @property
    def progress(self) -> dict[str, Any]:
        """How far the run got; empty before its first state."""
        saved = RunFolder(self.path).read_state()
        return saved[1] if saved else {}

    @property
    def done(self) -> bool:
        return self.progress.get("phase") == "done"


def jobs(names: Sequence[str], seeds: Sequence[int], folder: Path) -> list[Job]:
    return [
        Job(name, replace(recipes.get(name), seed=seed), folder / f"{name}-{seed}")
        for name in names
        for seed in seeds
    ]


def estimate(todo: Sequence[Job], workers: int) -> tuple[float, list[str]]:
    """Seconds that the jobs should take side by side, and the recipes that no log tells of.

    Taken from the logs of the shipped models, at the speed of this machine.
    """
    slower = slowness()
    seconds, unknown = [], []
    for job in todo:
        records = RunFolder(PRETRAINED / job.name).metrics()
        if not records:
            unknown.append(job.name)
            continue
        seconds.append(max(records[-1]["seconds"] * slower - job.progress.get("seconds", 0.0), 0.0))
    # The longest run may outlast an even share of all of them.
    return max([sum(seconds) / workers, *seconds], default=0.0), sorted(set(unknown))


def slowness(batches: int = 50) -> float:
    """How many times longer a batch takes here than it took in the shipped log of one model."""
    from ham.train.loop import train

    shipped = RunFolder(PRETRAINED / CALIBRATION)
    run = shipped.run()
    last = run.data.leaves
    ends = [record["seconds"] for record in shipped.metrics() if record["longest"] == last]
    there = float(np.median(np.diff(ends))) / run.data.batches
    data = {"data.start": last, "data.batches": batches, "data.validation": 1}
    short = changed(run, {**data, "schedule.epochs": 1, "schedule.finish": 0})
    with tempfile.TemporaryDirectory() as path:
        before = time.monotonic()
        for _ in train(short, RunFolder(path)):
            pass
        return (time.monotonic() - before) / batches / there


def train_all(todo: Sequence[Job], workers: int) -> Iterator[tuple[Job, float]]:
    """Train the jobs, `workers` at a time; gives each with its time as it ends.

    Longest first, as far as it is known, so that none is left to run alone at the end.
    """
    for job in todo:
        job.begin()
    order = sorted(todo, key=_cost, reverse=True)
    stopped = threading.Event()
    with ThreadPoolExecutor(workers) as pool:
        futures = {pool.submit(_train, job, stopped): job for job in order}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BaseException:
            _log.info("stopping; every run saves where it stands")
            stopped.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _cost(job: Job) -> float:
    records = RunFolder(PRETRAINED / job.name).metrics()
    return records[-1]["seconds"] if records else float("inf")


def _train(job: Job, stopped: threading.Event) -> float:
    before = time.monotonic()
    _wait_for_the_last_owner(RunFolder(job.path), stopped)
    # -P: a module in the current folder is not ours.
    words = [sys.executable, "-P", "-m", "ham", "train", "--resume", str(job.path), "--threads", "1"]
    with (
        open_log(job.path / LOG) as log,
        # Interrupted, a run saves where it stands.
        guarded(words, signal.SIGINT, SECONDS_TO_SAVE, stdout=log, stderr=log) as process,
    ):
        while (code := process.poll()) is None and not stopped.wait(SECONDS_BETWEEN_LOOKS):
            pass  # its end, or that of the command
        said = last_line(log)
    if code not in (None, 0, 130):
        raise InputError(f"{job.name} with seed {job.run.seed} failed: {visible(said)}")
    return time.monotonic() - before


def _wait_for_the_last_owner(folder: RunFolder, stopped: threading.Event) -> None:
    """The run of a command that was stopped or killed just now may still be saving."""
    until = time.monotonic() + SECONDS_FOR_THE_LAST_OWNER
    while not stopped.is_set():
        try:
            with folder.locked(patience=SECONDS_BETWEEN_LOOKS):
                return
        except InputError:
            if time.monotonic() > until:
                raise
