"""The shipped models: weights, the run that made them, its log, and a card with their errors.

`ham.load("sort")` takes them from here. A run becomes a shipped model by

    python -m ham.pretrained RUN_DIR NAME
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np

from ham import recipes
from ham.config import Run
from ham.evaluate import evaluate, lengths_for
from ham.learn.loop import TEST
from ham.runs import CHECKPOINT, CONFIG, METRICS, PRETRAINED, RunFolder, load, write_whole

CARD = "card.md"
TIMES_LONGER = (1, 4, 8, 32)
CARD_SEED = 0


def publish(run_folder: Path, name: str, examples: int = 2500) -> Path:
    """Ship a run under a name, with a card that says how it came about and how it errs."""
    target = PRETRAINED / name
    target.mkdir(parents=True, exist_ok=True)
    for file in (CONFIG, METRICS, CHECKPOINT):
        shutil.copyfile(run_folder / file, target / file)
    write_whole(target / CARD, card(target, name, examples).encode())
    return target


def card(folder: Path, name: str, examples: int) -> str:
    """The text of a model's card, its errors measured anew."""
    trained = load(folder / CHECKPOINT)
    run = trained.run
    epochs = RunFolder(folder).metrics()
    kept = max((epoch for epoch in epochs if epoch["best"]), key=lambda epoch: epoch["epoch"])
    lines = [
        f"# {name}",
        "",
        f"- trained by `{command(run, name)}`",
        f"- recipe `{name}`, seed {run.seed}; all settings in `{CONFIG}`, the log in `{METRICS}`",
        f"- {len(epochs)} epochs of {run.training.batches} batches of {run.training.batch} in "
        f"{epochs[-1]['seconds']:.0f} s on one core",
        f"- kept: epoch {kept['epoch']}, chosen by validation on lengths up to {run.training.leaves}: "
        f"error {kept['error']:g}%, cross-entropy {kept['loss']:.2g}",
        f"- {sum(tensor.numel() for tensor in trained.model.parameters()):,} parameters",
        "",
        f"Errors on {examples} fresh examples (seed {CARD_SEED}), whole sequences and bits:",
        "",
        "| leaves | lengths | wrong | error | 95% interval | bits wrong |",
        "|---|---|---|---|---|---|",
    ]
    for times in TIMES_LONGER:
        leaves = times * run.training.leaves
        low, high = lengths_for(leaves, run.training.leaves)
        low = high if trained.task.online else low
        score = evaluate(
            trained.model,
            trained.task,
            leaves=leaves,
            lengths=(low, high),
            examples=examples,
            rng=np.random.default_rng([TEST, CARD_SEED, leaves]),
        )
        bounds = " – ".join(f"{bound:.2f}%" for bound in score.interval)
        lines.append(
            f"| {leaves} | {low} – {high} | {score.wrong} | {score.error:.2f}% | {bounds} | {score.bit_error:.4f}% |"
        )
    return "\n".join(lines) + "\n"


def command(run: Run, name: str) -> str:
    """What trains this model again."""
    if name not in recipes.names() or replace(recipes.get(name), seed=run.seed) != run:
        source = f"{run.task} --recipe src/ham/pretrained/{name}/{CONFIG}"
    else:
        source = run.task if name == run.task else f"{run.task} --recipe {name}"
    return f"ham train {source} --seed {run.seed}"
