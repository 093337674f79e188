"""The resident memory of one process that trains and evaluates for an hour.

    python -m tests.reliability.hour --recipes sort merge --seeds 1 2 3 4 --runs runs --log hour.jsonl

Trains one recipe and seed after the other, whole, each followed by an evaluation at 1× and 4× the
trained size, until the time is over. Every epoch appends a line to the log. Evaluations at the larger
size come and go with their buffers, so what is compared is the most that was held in the first and in the
last quarter of the time.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch
from tests.reliability.memory import resident

from ham import recipes
from ham.runs import RunFolder, load
from ham.train.evaluate import evaluate_at
from ham.train.loop import Epoch, train


def work(names: list[str], seeds: list[int], runs: Path) -> Iterator[str]:
    """Train and evaluate for as long as there is something to do; says after each epoch what was done."""
    for name, seed in itertools.product(names, seeds):
        run = replace(recipes.get(name), seed=seed)
        folder = RunFolder(runs / f"{name}-{seed}")
        folder.begin(run)
        for event in train(run, folder):
            if isinstance(event, Epoch):
                yield f"{name} {seed}, epoch {event.epoch}"
        trained = load(str(folder.path))
        for leaves in (run.data.leaves, 4 * run.data.leaves):
            evaluate_at(trained, leaves, examples=2500, seed=seed)
            yield f"{name} {seed}, evaluated at {leaves} leaves"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--recipes", nargs="+", default=["sort", "merge"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--runs", type=Path, required=True, help="folder of the runs")
    parser.add_argument("--log", type=Path, required=True)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    began = time.monotonic()
    sizes: list[tuple[float, int]] = []
    with asked.log.open("w") as log:
        for did in work(asked.recipes, asked.seeds, asked.runs):
            sizes.append((time.monotonic() - began, resident()))
            seconds, held = sizes[-1]
            print(json.dumps({"seconds": round(seconds), "resident": held, "did": did}), file=log, flush=True)
            if seconds >= asked.seconds:
                break
    seconds, last = sizes[-1]
    first = max(held for at, held in sizes if at <= max(seconds / 10, sizes[0][0]))
    print(
        json.dumps({"seconds": round(seconds), "first_tenth": first, "last": last, "grew_by": last - first})
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
