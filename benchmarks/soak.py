"""A long training across all tasks, models and engines, in search of a number that is not one.

    python benchmarks/soak.py --batches 1000000 --seed 0

The batches are trained in legs of a few hundred, each a run of its own with settings drawn from
(seed, leg), by the loop that `ham train` uses. Every third leg starts from an extreme:

    sure     SEARCH scaled by 1e3: decisions saturated to p = 0 or 1, whose entropy is 0
    large    all weights scaled by 1e3, on trees whose values then still fit into float32
    single   trees of one leaf, questions of one row

After every batch the loop itself checks the loss and the norm of the gradient; here every epoch's
record and the final weights, moments and averages are checked too. Ends with code 1 at the first
number that is not finite, and says which leg it was.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch

import ham
from ham import tasks
from ham.config import Architecture, Data, Objective, Phase, Run, Schedule
from ham.core.seeds import Purpose, generator
from ham.core.tree import capacity_for
from ham.models.kinds import kind_for
from ham.ops import native
from ham.runs import RunFolder
from ham.train.loop import Diverged, Epoch, train
from ham.train.state import Progress

EXTREMES = ("sure", "large", "single")
LARGEST_TREE = {"large": 4, "single": 1}
BATCHES = {"native": 500, "reference": 20}
"""Of a leg, in two epochs; plain PyTorch takes some fifty times as long for each."""


def legs(seed: int) -> Iterator[tuple[Run, str, str | None]]:
    """Run after run, each with its engine and its extreme: tasks in turn, everything else drawn."""
    names = tasks.names()
    leg = 0
    while True:
        rng = generator(Purpose.SOAK, seed, leg)
        extreme = EXTREMES[leg // 3 % 3] if leg % 3 == 2 else None
        yield *_drawn(names[leg % len(names)], extreme, rng), extreme
        leg += 1


def _drawn(name: str, extreme: str | None, rng: np.random.Generator) -> tuple[Run, str]:
    def one_of(*choices):
        return choices[int(rng.integers(len(choices)))]

    task = tasks.get(name)
    hard, soft = (kind_for(task.online, suffix).name for suffix in ("", "-dham"))
    # Nearly all batches on the native engine, the others on plain PyTorch in short legs.
    kind = hard if rng.random() < 0.85 else one_of(soft, "lstm", "lstm+a")
    engine = one_of(*["native"] * 9, "reference") if native.available() else "reference"
    model = Architecture(
        kind=kind,
        cells=one_of(1, 8, 20),
        size=one_of(1, 8, 20),
        hidden=one_of(1, 8, 20),
        depth=one_of(1, 2),
        every=one_of(1, 1, 2),
    )
    smallest = capacity_for(task.shortest)
    largest = LARGEST_TREE.get(extreme or "", one_of(4, 8, 8, 16, 32))
    runs = one_of(1, 4)
    data = Data(
        batch=one_of(8, 16, 64),
        runs=runs,
        batches=BATCHES[engine] // 2,
        validation=64,
        start=smallest,
        leaves=max(largest, smallest),
        threshold=1.0,
        mix=0.5,
    )
    main = Phase(learning_rate=one_of(1e-3, 4e-3, 3e-2), exploration=one_of(0.0, 1.5e-3, 1.0))
    objective = Objective(
        reward=one_of("hamming", "log-probability"),
        discount=one_of(0.0, 0.9, 1.0),
        baseline=one_of("none", "leave-one-out" if runs > 1 else "learned"),
        normalise=one_of(True, False),
        entropy=one_of("inverse", "negative"),
    )
    schedule = Schedule(epochs=2, finish=one_of(0, 1))
    seed = int(rng.integers(1 << 31))
    return Run(name, model, data=data, objective=objective, schedule=schedule, main=main, seed=seed), engine


def soak_leg(run: Run, engine: str, extreme: str | None, path: Path) -> int:
    """Train one run from start to end; how many batches that were. `ArithmeticError` if it went wrong."""
    ham.set_backend(engine)
    folder = RunFolder(path)
    folder.begin(run)
    if extreme in ("sure", "large"):
        _scale_start(run, folder, only_search=extreme == "sure")
    for event in train(run, folder):
        if isinstance(event, Epoch):
            _all_finite(folder)
    _, progress = folder.read_state() or ({}, {})
    assert progress["phase"] == "done"
    return run.schedule.epochs * run.data.batches


def _all_finite(folder: RunFolder) -> None:
    tensors, _ = folder.read_state() or ({}, {})
    for name, tensor in tensors.items():
        if not torch.isfinite(tensor).all():
            raise ArithmeticError(f"{name} holds a value that is not finite")
    for name, value in folder.metrics()[-1].items():
        if isinstance(value, float) and not math.isfinite(value):
            raise ArithmeticError(f"{name} of an epoch is {value}")


def _scale_start(run: Run, folder: RunFolder, *, only_search: bool) -> None:
    """A saved state at the first batch whose weights are the random ones, scaled by 1e3."""
    torch.manual_seed(run.seed)
    model = run.model.build(tasks.get(run.task))
    scaled = [
        parameter.detach().flatten() * (1e3 if "search" in name or not only_search else 1)
        for name, parameter in model.named_parameters()
    ]
    weights = torch.cat(scaled)
    nothing = torch.zeros_like(weights)
    tensors = {"weights": weights, "average": weights, "best": weights, "mean": nothing, "square": nothing}
    folder.write_state(
        folder.run(), {name: tensor.clone() for name, tensor in tensors.items()}, asdict(Progress())
    )


def resident_megabytes() -> float:
    """What this process holds in memory now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batches", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--report", type=int, default=20_000, help="batches between lines of progress")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    started, done, told = time.monotonic(), 0, 0
    counts: Counter[str] = Counter()
    for number, (run, engine, extreme) in enumerate(legs(asked.seed)):
        try:
            with tempfile.TemporaryDirectory() as path:
                batches = soak_leg(run, engine, extreme, Path(path))
        except (Diverged, ArithmeticError) as error:
            print(
                f"leg {number} ({engine}, {extreme or 'ordinary'}): {error}\n{run.to_json()}", file=sys.stderr
            )
            return 1
        done += batches
        counts += {
            engine: batches,
            extreme or "ordinary": batches,
            run.model.kind: batches,
        }
        if done - told >= asked.report or done >= asked.batches:
            told = done
            spent = time.monotonic() - started
            parts = ", ".join(f"{name} {count:,}" for name, count in counts.most_common())
            print(
                f"{done:,} batches in {number + 1:,} legs, all finite; {spent:,.0f} s; "
                f"resident {resident_megabytes():.0f} MB ({parts})",
                flush=True,
            )
        if done >= asked.batches:
            return 0
    raise AssertionError("legs never end")


if __name__ == "__main__":
    sys.exit(main())
