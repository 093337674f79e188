"""Kills `ham train` with SIGKILL at random moments, resumes it each time, and compares the bits.

    python -m tests.reliability.kill --kills 100

Every run is a process of its own, forked from this one after the imports: what is killed is the
command, not the two seconds that Python and PyTorch take to start. Its epochs are as short as they
can be, so that much of the time is spent writing files. Every other kill waits for the next write; one
that left a file half written is recognised by its temporary. When a run has come to its end despite
all kills, its files are compared with those of a run that nobody disturbed, and the next one begins.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import redirect_stderr
from pathlib import Path

import torch

from ham import cli, runs
from ham.config import Architecture, Run, changed
from ham.ops import native
from ham.runs import CHECKPOINT, CONFIG, RunFolder
from ham.train import loop

TINY = Architecture(cells=4, size=4, hidden=4, depth=1)
SETTINGS = {
    "data.batch": 4, "data.runs": 2, "data.batches": 2, "data.validation": 4, "data.start": 1, "data.leaves": 4,
    "data.threshold": 1.0, "data.mix": 0.5, "objective.baseline": "leave-one-out",
    "schedule.epochs": 30, "schedule.finish": 10, "schedule.patience": 1000,
}  # fmt: skip
LONGEST_LIFE = 0.4
"""Seconds: about twice what a run takes to start and train a few epochs."""


def ham(*words: object, always_saving: bool) -> int:
    """Start `ham` with these words in a process of its own; its id."""
    sys.stdout.flush()
    if child := os.fork():
        return child
    code = 70
    try:
        if always_saving:
            loop.SECONDS_BETWEEN_STATES = -1.0  # a state after every batch, as half an hour's would
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        code = cli.main([str(word) for word in words])
    finally:
        os._exit(code)


def warm_up() -> None:
    """Import and load here what every child would have to otherwise."""
    torch.set_num_threads(1)
    native.available()
    with redirect_stderr(io.StringIO()):
        assert cli.main(["train", "--resume", os.devnull]) == 2


def whole(child: int) -> None:
    """Wait for a run that must come to its end."""
    _, status = os.waitpid(child, 0)
    if os.waitstatus_to_exitcode(status):
        raise SystemExit(f"a run ended with {os.waitstatus_to_exitcode(status)}")


def killed(child: int, after: float, writes: Callable[[], bool]) -> bool:
    """Kill a run after some seconds, as soon as it writes or does not for long; whether it was still running."""
    time.sleep(after)
    latest = time.monotonic() + LONGEST_LIFE
    while not writes() and time.monotonic() < latest:
        pass
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if code not in (0, -signal.SIGKILL):
        raise SystemExit(f"a run that was resumed ended with {code}")
    return code != 0


def left_by(folder: RunFolder) -> tuple:
    """All that a run leaves, but for the time it took."""
    tensors, progress = folder.read_state() or ({}, {})
    state = {name: tensor.numpy().tobytes() for name, tensor in tensors.items()}
    records = [{**record, "seconds": 0} for record in folder.metrics()]
    names = sorted(path.name for path in folder.path.iterdir())
    return (folder.path / CHECKPOINT).read_bytes(), records, state, {**progress, "seconds": 0}, names


def check(folder: RunFolder) -> None:
    """Whatever is there after a kill must be whole."""
    if (folder.path / CONFIG).exists():
        folder.run()
        folder.read_state()
        folder.metrics()
    if (folder.path / CHECKPOINT).exists():
        runs.load(folder.path)


def temporaries(folder: Path) -> set[str]:
    """Files that are being written, or were when a run was killed."""
    names = os.listdir(folder) if folder.exists() else []
    return {name for name in names if name.startswith(".") and name != ".lock"}


def words_for(folder: RunFolder, recipe: Path) -> tuple:
    if (folder.path / CONFIG).exists():
        return "--resume", folder.path
    return "--recipe", recipe, "--out", folder.path


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    warm_up()
    chance = random.Random(asked.seed)
    kills = in_writes = finished = 0
    with tempfile.TemporaryDirectory() as here:
        while kills < asked.kills:
            way = {"always_saving": finished % 2 == 1}
            recipe = Path(here) / f"{finished}.json"
            run = changed(Run("reverse", TINY, seed=finished), SETTINGS)
            recipe.write_text(run.to_json())
            straight, disturbed = (
                RunFolder(Path(here) / f"{name}-{finished}") for name in ("straight", "disturbed")
            )
            whole(ham("train", "--recipe", recipe, "--out", straight.path, always_saving=False))
            running = True
            while running and kills < asked.kills:
                before = temporaries(disturbed.path)
                waits = kills % 2 == 1
                child = ham("train", *words_for(disturbed, recipe), **way)
                running = killed(
                    child,
                    chance.uniform(0, LONGEST_LIFE),
                    writes=lambda: not waits or bool(temporaries(disturbed.path) - before),  # noqa: B023
                )
                kills += running
                in_writes += running and bool(temporaries(disturbed.path) - before)
                if disturbed.path.exists():
                    check(disturbed)
            if running:
                whole(ham("train", *words_for(disturbed, recipe), **way))
            if left_by(disturbed) != left_by(straight):
                raise SystemExit(
                    f"seed {finished}: the disturbed run ended otherwise than the undisturbed one"
                )
            finished += 1
    print(json.dumps({"kills": kills, "in_the_middle_of_a_write": in_writes, "runs_compared": finished}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
