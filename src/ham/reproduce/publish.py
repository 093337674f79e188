"""Shipped models: weights, the run that made them, its log, and a card with their errors.

They lie in `pretrained/`, where `ham.load("sort")` finds them. Runs of one recipe with different
seeds become a shipped model by

    python -m ham.reproduce.publish NAME RUN_DIR...

The one that errs least on fresh short inputs is shipped (`acceptance`); the errors of all go into `seeds.json`. Seeds
of the same recipe that were published before stay there, and the shipped one among them stays shipped if none of the
new ones errs less; of new ones that err as little the surest is shipped.
Without a RUN_DIR the card of a shipped model is written anew, its errors measured again.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ham import recipes
from ham.config import Run
from ham.core.errors import InputError
from ham.core.files import read_text, write_whole
from ham.reproduce import exact
from ham.reproduce.acceptance import ASKED, acceptance
from ham.runs import CHECKPOINT, CONFIG, METRICS, PRETRAINED, RunFolder, load, shipped
from ham.train.evaluate import evaluate_at, lengths_for

CARD, SEEDS = "card.md", "seeds.json"
TIMES_LONGER = (1, 4, 8, 32)
CARD_SEED = 0
FAR, FAR_ASKED = 1024, 500
"""Leaves at which the wrong sequences of every seed are counted, and of how many."""


def publish(name: str, runs: Sequence[Path], examples: int = 2500) -> Path:
    """Ship the best of a recipe's runs, with a card that says how it came about and how it errs."""
    settings = {replace(RunFolder(path).run(), seed=0) for path in runs}
    if len(settings) != 1:
        raise InputError(f"the runs for {name} are of {len(settings)} different recipes")
    new = [RunFolder(path).run().seed for path in runs]
    if len(set(new)) < len(new):
        raise InputError(
            f"the runs for {name} have seeds {', '.join(map(str, sorted(new)))}: each may come once"
        )
    target = PRETRAINED / name
    before = [its for its in _published(name, *settings) if its["seed"] not in new]
    candidates = {RunFolder(path).run().seed: path for path in runs}
    if any(its["shipped"] for its in before):
        candidates[RunFolder(target).run().seed] = target
    measured = {seed: of_seed(path, examples) for seed, path in candidates.items()}
    best = min(measured, key=lambda seed: _rank(measured[seed], candidates[seed] == target))
    if candidates[best] != target:
        target.mkdir(parents=True, exist_ok=True)
        for file in (CONFIG, METRICS, CHECKPOINT):
            shutil.copyfile(candidates[best] / file, target / file)
    every = {its["seed"]: its for its in before} | measured
    all_seeds = [{**every[seed], "shipped": seed == best} for seed in sorted(every)]
    write_whole(target / SEEDS, (json.dumps(all_seeds, indent=1) + "\n").encode())
    return renew(name, examples)


def _rank(measured: Mapping[str, Any], is_shipped: bool) -> tuple[int, bool, float]:
    return measured["accepted"], not is_shipped, measured["accepted_loss"]


def _published(name: str, recipe: Run) -> list[dict[str, Any]]:
    """What the seeds that were published before came to, if they are of this recipe."""
    folder = RunFolder(PRETRAINED / name)
    same = (folder.path / CONFIG).exists() and replace(folder.run(), seed=0) == recipe
    return seeds_of(name) if same else []


def renew(name: str, examples: int = 2500) -> Path:
    """Write the card of a shipped model anew."""
    target = PRETRAINED / name
    if not (target / CHECKPOINT).is_file():
        raise InputError(f"no model named {name!r} is shipped; there are {', '.join(shipped())}")
    write_whole(target / CARD, card(target, name, examples).encode())
    return target


def of_seed(path: Path, examples: int) -> dict[str, Any]:
    """What one run came to: on short inputs that may choose, and its errors on test inputs, which may not."""
    trained = load(path)
    accepted = acceptance(trained)
    records, kept = RunFolder(path).metrics(), RunFolder(path).kept()
    errors = {}
    for split, times in (("test", 1), ("generalisation", 4)):
        leaves = times * trained.run.data.leaves
        errors[split] = evaluate_at(trained, leaves, examples=examples, seed=CARD_SEED).error
    if trained.run.model.traits.timestep != "n":
        errors["far"] = evaluate_at(trained, FAR, examples=FAR_ASKED, seed=CARD_SEED).wrong
    return {
        "seed": trained.run.seed,
        "longest": kept["longest"],
        "validation": kept["error"],
        "loss": kept["loss"],
        "accepted": accepted.wrong,
        "accepted_loss": accepted.loss,
        "epochs": len(records),
        "seconds": records[-1]["seconds"],
        **errors,
    }


def seeds_of(name: str) -> list[dict[str, Any]]:
    """What every seed of a shipped model came to; empty where only one was published."""
    path = PRETRAINED / name / SEEDS
    return json.loads(read_text(path)) if path.exists() else []


def _why(seeds: Sequence[dict[str, Any]]) -> str:
    """How the shipped one of several seeds was chosen."""
    wrong = next((its.get("accepted") for its in seeds if its["shipped"]), None)
    if wrong is None:
        return f"the best by validation of {len(seeds)}"
    if len(seeds) == 1:
        return f"the only one trained, {wrong} wrong of {ASKED:,} fresh short inputs"
    as_good = sum(its.get("accepted") == wrong for its in seeds)
    one = "the one that errs" if as_good == 1 else f"one of {as_good} that err"
    return f"of {len(seeds)} {one} least on {ASKED:,} fresh short inputs: {wrong} wrong"


def origin(folder: Path, name: str) -> list[str]:
    """A card's first lines: how the model came about, from the files beside it."""
    trained = load(folder / CHECKPOINT)
    run = trained.run
    epochs, kept = RunFolder(folder).metrics(), RunFolder(folder).kept()
    seeds = seeds_of(name)
    return [
        f"# {name}",
        "",
        f"- trained by `{command(run, name)}`",
        f"- recipe `{name}`; all settings in `{CONFIG}`, the log in `{METRICS}`",
        f"- seed {run.seed}, {_why(seeds)}; all of them in `{SEEDS}`",
        f"- {len(epochs)} epochs of {run.data.batches} batches of {run.data.batch} in "
        f"{epochs[-1]['seconds']:.0f} s on one core",
        f"- kept: epoch {kept['epoch']}, chosen by validation on lengths up to {run.data.leaves}: "
        f"error {kept['error']:g}%, cross-entropy {kept['loss']:.2g}",
        f"- {sum(tensor.numel() for tensor in trained.model.parameters()):,} parameters",
    ]


def card(folder: Path, name: str, examples: int) -> str:
    """The text of a model's card, its errors measured anew."""
    trained = load(folder / CHECKPOINT)
    run, parts = trained.run, f"{trained.task.outputs.part}s"
    lines = [
        *origin(folder, name),
        "",
        f"Errors on fresh examples (seed {CARD_SEED}), whole sequences and {parts}:",
        "",
        f"| leaves | lengths | examples | wrong | error | 95% interval | {parts} wrong |",
        "|---|---|---|---|---|---|---|",
    ]
    for times in TIMES_LONGER:
        leaves = times * run.data.leaves
        # Who looks at everything every time gets fewer of the longest inputs: as much work as at 4 times.
        fewer = max(times // 4, 1) ** 2 if run.model.traits.timestep == "n" else 1
        score = evaluate_at(trained, leaves, examples=max(examples // fewer, 1), seed=CARD_SEED)
        low, high = lengths_for(leaves, run.data.leaves)
        low = high if trained.task.online else low
        bounds = " – ".join(f"{bound:.2f}%" for bound in score.interval)
        lines.append(
            f"| {leaves} | {low} – {high} | {score.examples} | {score.wrong} | {score.error:.2f}% | {bounds} "
            f"| {score.part_error:.4f}% |"
        )
    if name in recipes.HARD and trained.task.hard_cases():
        lines += [
            "",
            f"Hard cases (seed {CARD_SEED}); families with a star may be practised, the others are only for reporting:",
            "",
            *exact.family_table(exact.families(trained, CARD_SEED, exact.HARD_ASKED)),
        ]
    return "\n".join(lines) + "\n"


def command(run: Run, name: str) -> str:
    """What trains this model again."""
    if name not in recipes.names() or replace(recipes.get(name), seed=run.seed) != run:
        source = f"{run.task} --recipe src/ham/pretrained/{name}/{CONFIG}"
    else:
        source = run.task if name == run.task else f"{run.task} --recipe {name}"
    return f"ham train {source} --seed {run.seed}"


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: python -m ham.reproduce.publish NAME [RUN_DIR...]")
    name, *paths = sys.argv[1:]
    try:
        print(publish(name, [Path(path) for path in paths]) if paths else renew(name))
    except InputError as error:
        sys.exit(f"ham: {error}")
