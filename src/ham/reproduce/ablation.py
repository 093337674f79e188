"""What each technique of a recipe is worth: the recipe is trained again without it, from several seeds.

    python -m ham.reproduce.ablation stack reverse --seeds 0 1 2 --workers 2 --document docs/ablations.md

Runs go on where they stood, and runs that have ended are only measured: the same command with more seeds adds them to
the page. What the page has of other tasks stays. `--batches` makes epochs shorter in all lines alike, the whole
recipe's included; a start is then given as many more of them to get on.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ham import recipes
from ham.config import NOWHERE, UNBOUNDED, Run, changed
from ham.core.errors import InputError
from ham.core.files import read_text, write_whole
from ham.core.seeds import Purpose, generator
from ham.reproduce.retrain import Job, train_all
from ham.runs import RunFolder, Trained, load
from ham.train.evaluate import evaluate, evaluate_at
from ham.train.practice import Conditions

LEFT_OUT: dict[str, dict[str, Any]] = {
    "nothing": {},
    "bounds": {"model.top": 0.0, "model.join": "rectified", **UNBOUNDED},
    "tall trees": {"main.tall": 0.0, "end.tall": 0.0},
    "other first states": {**NOWHERE, "main.stocked": 0.0, "end.stocked": 0.0},
    "hard cases": {"main.hard": 0.0, "end.hard": 0.0},
    "mixed sizes": {"data.mix": 0.0},
    "leave-one-out": {"data.runs": 1, "objective.baseline": "learned"},
    "one order": {"objective.rightward": 0.0},
    "averaging": {"optimiser.averaging": 0.0},
    "end phase": {"schedule.finish": 0},
    "other starts": {"schedule.trial": 0},
}
"""What is left out, and by which settings."""
VALIDATED = 2500
ASKED = {128: 1000, 1024: 200}
"""Examples at longer inputs, by leaves."""
SEED = 0


def jobs(tasks: Sequence[str], seeds: Sequence[int], folder: Path, batches: int | None) -> list[Job]:
    """A run for each seed of each line of each task; lines that a recipe does not have are not run."""
    found = []
    for task in tasks:
        if task not in recipes.HARD:
            raise InputError(
                f"no recipe with hard attention is named {task!r}; there are {', '.join(recipes.HARD)}"
            )
        whole = recipes.get(task)
        if batches is not None:
            whole = changed(whole, {"data.batches": batches, "schedule.trial": _trial(whole, batches)})
        for without, settings in LEFT_OUT.items():
            run = changed(whole, settings)
            if run == whole and settings:
                continue
            name = f"{task} without {without}"
            found += [
                Job(name, replace(run, seed=seed), folder / f"{name.replace(' ', '-')}-{seed}")
                for seed in seeds
            ]
    return found


def _trial(whole: Run, batches: int) -> int:
    """Epochs of so many batches in which a start is given as many as before to get on."""
    return math.ceil(whole.schedule.trial * whole.data.batches / batches)


def measured(job: Job) -> dict[str, Any]:
    """What a run came to. It is validated as the whole recipe is, so that all lines have the same to do."""
    trained, records = load(job.path), RunFolder(job.path).metrics()
    task, _, without = job.name.partition(" without ")
    return {
        "task": task,
        "without": without,
        "seed": job.run.seed,
        "batches": job.run.data.batches,
        "seconds": records[-1]["seconds"],
        "validation": validation(trained, recipes.get(task)),
        "wrong": {
            leaves: evaluate_at(trained, leaves, examples=asked, seed=SEED).wrong
            for leaves, asked in ASKED.items()
        },
    }


def validation(trained: Trained, whole: Run) -> float:
    """Percentage of wrong sequences under the conditions of a whole recipe's end, on inputs as short as its own."""
    leaves = whole.data.leaves
    conditions = Conditions.of(whole, "finish", leaves)
    if not trained.run.model.cell_bound:
        conditions = replace(conditions, anywhere=0.0)  # there is no bound to start anywhere inside of
    return evaluate(
        trained.model,
        trained.task,
        leaves=leaves,
        lengths=(1, leaves),
        examples=VALIDATED,
        rng=generator(Purpose.VALIDATION, SEED, 0),
        conditions=conditions,
    ).error


def page(found: Sequence[dict[str, Any]], before: str = "") -> str:
    """A table for each task, of what was measured of its lines; those of other tasks are as they were `before`."""
    asked = " and ".join(f"{asked:,} at {leaves:,} leaves" for leaves, asked in ASKED.items())
    intro = [
        "# What each technique is worth",
        "",
        "Each recipe is trained without one of its techniques, from the same seeds. Of every seed: the validation",
        "error under the conditions of the whole recipe's end (short inputs in tall trees, from other first states,",
        "hard cases; where cells are unbounded, from the usual first state), and wrong sequences of",
        f"{asked}. Written by",
        "`python -m ham.reproduce.ablation TASK... --document docs/ablations.md`.",
    ]
    parts = dict(re.findall(r"^(## .+)\n([^#]*)", before, re.MULTILINE))
    for task in dict.fromkeys(each["task"] for each in found):
        parts[f"## {task}"] = "\n" + _table([each for each in found if each["task"] == task])
    text = "\n".join([*intro, ""])
    return text + "".join(f"\n{title}\n{part.rstrip()}\n" for title, part in parts.items())


def _table(of_task: Sequence[dict[str, Any]]) -> str:
    """A line for each technique, with every seed's figures."""
    seeds, batches = sorted({each["seed"] for each in of_task}), of_task[0]["batches"]
    usual = recipes.get(of_task[0]["task"]).data.batches
    lines = [
        f"Seeds {', '.join(map(str, seeds))}; epochs of {batches:,} batches"
        + (f", where the recipe has {usual:,}." if batches != usual else "."),
        "",
        f"| without | validation, % | {' | '.join(f'wrong at {leaves:,}' for leaves in ASKED)} | minutes |",
        f"|---|---|{'---|' * len(ASKED)}---|",
    ]
    for without in dict.fromkeys(each["without"] for each in of_task):
        of_line = [each for each in of_task if each["without"] == without]
        cells = [", ".join(f"{each['validation']:.2f}" for each in of_line)]
        cells += [", ".join(str(each["wrong"][leaves]) for each in of_line) for leaves in ASKED]
        minutes = sum(each["seconds"] for each in of_line) / 60 / len(of_line)
        lines.append(f"| {without} | {' | '.join(cells)} | {minutes:.1f} |")
    return "\n".join(lines)


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m ham.reproduce.ablation", description="Recipes without their parts."
    )
    parser.add_argument("tasks", nargs="+", metavar="TASK")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--out", type=Path, default=Path("ablations"), help="the folder of the runs")
    parser.add_argument("--workers", type=int, default=1, help="runs at a time")
    parser.add_argument("--batches", type=int, help="in an epoch, instead of the recipe's")
    parser.add_argument("--document", type=Path, help="write the page here, instead of printing it")
    asked = parser.parse_args(words)
    todo = jobs(asked.tasks, asked.seeds, asked.out, asked.batches)
    left = [job for job in todo if not job.done]
    for number, (job, seconds) in enumerate(train_all(left, asked.workers), start=1):
        print(
            f"{number} of {len(left)}: {job.name}, seed {job.run.seed}, {seconds / 60:.1f} min",
            file=sys.stderr,
        )
    before = read_text(asked.document) if asked.document and asked.document.exists() else ""
    text = page([measured(job) for job in todo], before)
    if asked.document:
        write_whole(asked.document, text.encode())
    else:
        print(text, end="")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except InputError as error:
        sys.exit(f"ham: {error}")
