"""What training and evaluation hold in memory, measured in a process of its own.

    python -m tests.reliability.memory --episodes 10000

Prints JSON: how much the resident memory grew over so many episodes, forward and backward, after a
tenth as many to warm up; over batches of training; over evaluations; and the peak of one
evaluation of a large memory beside what docs/reliability.md says it takes.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

import ham
from ham import tasks
from ham.config import Architecture, Data, Run, Schedule
from ham.models import LSTMHAM
from ham.ops import native
from ham.runs import RunFolder, load
from ham.train.evaluate import evaluate
from ham.train.loop import train

PAGE = os.sysconf("SC_PAGE_SIZE")


def resident() -> int:
    """Bytes that this process holds now."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


def peak_of(work: Callable[[], object]) -> int:
    """Bytes by which the largest resident size during some work exceeds that before it."""
    before = resident()
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    work()
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line]
    return int(line.split()[1]) * 1024 - before


def growth_of(work: Callable[[int], object], times: int) -> int:
    """Bytes by which the resident size grows over some work, once a tenth of it has warmed up."""
    for number in range(max(times // 10, 1)):
        work(number)
    before = resident()
    for number in range(times):
        work(number)
    return resident() - before


def episode() -> Callable[[int], None]:
    """Forward and backward, of a batch size and a length that change all the time."""
    model = LSTMHAM(6, 5, cells=8, size=8, hidden=8)
    generator = torch.Generator().manual_seed(0)

    def work(number: int) -> None:
        batch, leaves, asked = 1 + number % 17, 1 << number % 4, 1 + number % 5
        result = model(
            torch.rand(batch, leaves, 6, generator=generator),
            torch.full((batch,), leaves),
            torch.full((batch,), asked),
            leaves=leaves,
            uniforms=torch.rand(batch, asked, leaves.bit_length() - 1, generator=generator),
        )
        (result.outputs.sum() + result.turn_logits.square().sum()).backward()

    return work


def training_growth(batches: int) -> int:
    """Over an epoch of a run, after one to warm up."""
    small = Architecture(cells=8, size=8, hidden=8)
    data = Data(batch=16, batches=batches, validation=100, start=2, leaves=8, threshold=1.0)
    run = Run("sort", small, data=data, schedule=Schedule(epochs=2))
    sizes = []
    with tempfile.TemporaryDirectory() as here:
        folder = RunFolder(Path(here) / "run")
        folder.begin(run)
        for event in train(run, folder):
            if hasattr(event, "seconds"):
                sizes.append(resident())
    return sizes[1] - sizes[0]


def evaluation(leaves: int, examples: int) -> Callable[[int], object]:
    trained = load("reverse")

    def work(number: int) -> object:
        rng = np.random.default_rng(number)
        lengths = (leaves // 2 + 1, leaves)
        return evaluate(
            trained.model, trained.task, leaves=leaves, lengths=lengths, examples=examples, rng=rng
        )

    return work


def documented(leaves: int) -> int:
    """Bytes for one example of Reverse: 2n·d floats of tree, the rows and the outputs several times over.

    A row is drawn as whole numbers and as bits, and copied once for the engine; an output has its
    logits, its target, and what the two errors are counted from.
    """
    task, width = tasks.get("reverse"), 20
    rows, outputs = leaves * task.features, leaves * task.outputs.width
    return 4 * (2 * leaves * width + 4 * rows + 6 * outputs)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--episodes", type=int, default=10_000)
    parser.add_argument("--batches", type=int, default=1_000)
    parser.add_argument("--leaves", type=int, default=1 << 15)
    parser.add_argument("--backend", default="native")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    ham.set_backend(asked.backend)
    if asked.backend == "native" and not native.available():
        raise SystemExit(native.why_not())
    work = evaluation(asked.leaves, 1)
    found = {
        "episodes": asked.episodes,
        "episodes_grew_by": growth_of(episode(), asked.episodes),
        "batches": asked.batches,
        "training_grew_by": training_growth(asked.batches),
        "evaluations_grew_by": growth_of(evaluation(16, 50), max(asked.episodes // 100, 10)),
        "leaves": asked.leaves,
        "evaluation_peak": peak_of(lambda: work(0)),
        "evaluation_documented": documented(asked.leaves),
        "resident": resident(),
    }
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
