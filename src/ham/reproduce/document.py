"""`docs/results.md`, written by `ham reproduce --document docs/results.md`: every figure in one place."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ham import recipes
from ham.core.files import read_text, write_whole
from ham.reproduce import exact
from ham.reproduce.acceptance import ASKED
from ham.reproduce.exact import Counted
from ham.reproduce.pages import EXACT, fingerprint
from ham.reproduce.publish import FAR, FAR_ASKED, seeds_of
from ham.reproduce.tables import PAPER, Text, by_length, markdown, recipe_of, shipped_models
from ham.runs import RunFolder, Trained, load
from ham.search.plan import SearchFolder
from ham.view import plots
from ham.view.plots import Measured

LEARNED = 1.0
"""Percent of validation error on the last tree at which a task counts as learned."""
SEARCHES = Path(__file__).parents[1] / "recipes" / "searches"


def write_document(
    file: Path,
    pairs: Sequence[tuple[str, str]],
    tables: Sequence[Text],
    note: str,
    seed: int,
    count: Callable[[int], None],
) -> None:
    """The tables, every seed, the searches, errors by length and learning curves."""
    pictures = file.parent / "results"
    logs = logs_of(pairs)
    models = shipped_models()
    hard = {name: load(models[name]) for _, name in pairs if name in recipes.HARD and name in models}
    counted: dict[str, list[Counted]] = {}
    for name, trained in hard.items():
        counted[name] = list(exact.by_length(trained, seed, exact.ASKED))
        count(1)
    curves: dict[str, dict[str, list[Measured]]] = {}
    for task, of_task in logs.items():
        for column, folder in of_task.items():
            points = list(by_length(folder.path, seed))
            further = counted.get(recipe_of(column, task), ())
            points += [one.percent for one in further if one.leaves > points[-1].leaves]
            curves.setdefault(task, {})[column] = points
            count(1)
    parts = [
        "# Results",
        "",
        f"Written by `ham reproduce --seed {seed} --document {os.fspath(file)}` for the shipped models "
        f"`{fingerprint()}`; nothing here is typed by hand.",
        "",
        note,
        "",
        markdown(list(tables)),
        *_seeds(pairs),
        "## Time to learn",
        "",
        "Batches of 64, or of 50 to the letter, after which the shipped model's validation error on its last tree was",
        f"first at most {LEARNED:g}%.",
        "",
        *time_table(logs),
        "",
        "## Searches",
        "",
        *search_table(),
        "",
        *_exact(hard, counted, seed, count),
        *_by_length(curves, pictures),
        *_learning(logs, pictures),
    ]
    write_whole(file, "\n".join(parts).encode())


def _seeds(pairs: Sequence[tuple[str, str]]) -> list[str]:
    """What every seed of every model came to, and how long a run may take."""
    soft = [run for name in recipes.names() if (run := recipes.get(name)).model.learner.traits.soft]
    most = max(run.schedule.epochs * run.data.batches for run in soft)
    most_epochs = max(recipes.get(name).schedule.epochs for name in recipes.HARD if name != "add")
    return [
        "## Seeds",
        "",
        "Errors on 2,500 test inputs and 2,500 longer ones, in percent. *Reach the paper* counts the seeds that are",
        "at the paper's figure or below it, on test inputs and on longer ones; wrong sequences stand in the order of",
        f"the seeds. The seed is shipped that errs least on {ASKED:,} fresh inputs of at most 32 rows, half of them as",
        "hard as its recipe practises (`short`); where those were not counted, the one with the best validation.",
        "",
        f"A run has at most {most_epochs} epochs of 1,000 batches of 64 examples and sizes up to 32, one of Add "
        f"{recipes.get('add').schedule.epochs}, with those",
        "of starts that it gave up; DHAM, whose batches cost Θ(n) times as much, at most",
        f"{most:,} batches in all, or, where it learns with sampled turns, as HAM. All settle by the same rule: after",
        "`patience` epochs on the last tree without a lower validation error; Add once that tree is mastered. HAM and",
        "DHAM then have an end phase with a lower learning rate and without exploration. HAM to the paper's letter",
        "(`-paper`) always has 100 epochs of 1,000 batches of 50, and no end phase. Minutes are by the clock, of one",
        "thread; some runs shared their core.",
        "",
        *seed_table(pairs),
        "",
    ]


def _by_length(curves: Mapping[str, Mapping[str, list[Measured]]], pictures: Path) -> list[str]:
    """Errors of every model by the size of its memory, as plots and tables."""
    parts = [
        "## Error by length",
        "",
        "In percent, with 95% intervals. Beyond 1,024 leaves few are asked (see above), and none where all are wrong.",
        "",
    ]
    for task, by_size in curves.items():
        trained_on = dict.fromkeys(by_size, 32)
        plots.save(plots.error_by_length(by_size, trained_on), pictures, f"length-{task}")
        parts += [f"![{task}: error against the size of the memory](results/length-{task}.svg)", ""]
        parts += [*length_table(by_size), ""]
    return parts


def _learning(logs: Mapping[str, Mapping[str, RunFolder]], pictures: Path) -> list[str]:
    """Plots of the validation error by epoch."""
    parts = ["## Learning curves", ""]
    for task, by_column in logs.items():
        curves = {column: folder.metrics() for column, folder in by_column.items()}
        plots.save(plots.learning(curves), pictures, f"learning-{task}")
        parts += [f"![{task}: validation error by epoch](results/learning-{task}.svg)", ""]
    return parts


def _exact(
    hard: Mapping[str, Trained],
    counted: Mapping[str, Sequence[Counted]],
    seed: int,
    count: Callable[[int], None],
) -> list[str]:
    """How far HAM's models stay exact, and on which hard cases they err."""
    parts = [
        f"## {EXACT}",
        "",
        "Whole sequences wrong of those asked, by the size of the memory; trained on at most 32 rows, in trees that",
        "may be taller. Where all are wrong, longer ones are not asked.",
        "",
        *exact.length_table(counted),
        "",
        "## Hard cases",
        "",
        "Families with a star may be practised, the others are only for reporting (`ham stress NAME`).",
        "",
    ]
    for name, trained in hard.items():
        parts += [f"**{name}**", "", *exact.family_table(exact.families(trained, seed, exact.HARD_ASKED)), ""]
        count(1)
    return parts


def logs_of(pairs: Sequence[tuple[str, str]]) -> dict[str, dict[str, RunFolder]]:
    """What the training of each shipped model left, by task and column."""
    models = shipped_models()
    logs: dict[str, dict[str, RunFolder]] = {}
    for column, task in pairs:
        if (name := recipe_of(column, task)) in models:
            logs.setdefault(task, {})[column] = RunFolder(models[name])
    return logs


def length_table(of_task: Mapping[str, list[Measured]]) -> list[str]:
    return exact.size_table(
        {
            column: {point.leaves: f"{point.error:.3g}%" for point in points}
            for column, points in of_task.items()
        }
    )


def seed_table(pairs: Sequence[tuple[str, str]]) -> list[str]:
    lines = [
        "| model | seeds | test: mean, worst | longer: mean, worst | reach the paper "
        f"| short, wrong of {ASKED:,} | wrong of {FAR_ASKED} at {FAR:,} leaves | epochs | minutes |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for column, task in pairs:
        name = recipe_of(column, task)
        if not (seeds := seeds_of(name)):
            continue
        errors = {split: [of_seed[split] for of_seed in seeds] for split in ("test", "generalisation")}
        reach = "—"
        if paper := PAPER.get((column, task)):
            good = [
                sum(error <= figure for error in of_split)
                for figure, of_split in zip(paper, errors.values(), strict=True)
            ]
            reach = " and ".join(f"{share} of {len(seeds)}" for share in good)
        means = [f"{np.mean(of_split):.3g}, {max(of_split):.3g}" for of_split in errors.values()]
        epochs = np.mean([of_seed["epochs"] for of_seed in seeds])
        minutes = np.mean([of_seed["seconds"] for of_seed in seeds]) / 60
        numbers = ", ".join(str(of_seed["seed"]) for of_seed in seeds)
        short, far = (_counts(seeds, what) for what in ("accepted", "far"))
        cells = [name, numbers, *means, reach, short, far, f"{epochs:.0f}", f"{minutes:.1f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _counts(seeds: Sequence[Mapping[str, Any]], what: str) -> str:
    """What was counted of every seed; – where it was not."""
    if not any(what in of_seed for of_seed in seeds):
        return ""
    return ", ".join(str(of_seed.get(what, "–")) for of_seed in seeds)


def time_table(logs: Mapping[str, Mapping[str, RunFolder]]) -> list[str]:
    columns = list(dict.fromkeys(column for by_column in logs.values() for column in by_column))
    lines = [f"| task | {' | '.join(columns)} |", "|---" * (1 + len(columns)) + "|"]
    for task, by_column in logs.items():
        cells = [_time_of(by_column[column]) if column in by_column else "" for column in columns]
        lines.append(f"| {task} | {' | '.join(cells)} |")
    return lines


def _time_of(folder: RunFolder) -> str:
    data, metrics = folder.run().data, folder.metrics()
    for epoch, record in enumerate(metrics, 1):
        if record["longest"] == data.leaves and record["error"] <= LEARNED:
            return f"{epoch * data.batches:,}"
    return f"not in {len(metrics) * data.batches:,}"


def search_table() -> list[str]:
    """What was searched for the recipes, from the files that the searches left; equal spaces are told once."""
    lines = [
        "| recipe | trials | epochs × batches | trained to | validated on | reached it | succeeded | best | space |",
        "|---" * 9 + "|",
    ]
    spaces: list[str] = []
    for folder in sorted(path.parent for path in SEARCHES.glob("*/results.json")):
        summary = json.loads(read_text(folder / "results.json"))["summary"]
        plan = SearchFolder(folder).plan()
        data = plan.base.data
        space = "; ".join(f"`{name}` {_range(values.to_json())}" for name, values in plan.space.items())
        if space not in spaces:
            spaces.append(space)
        cells = (
            folder.name,
            summary["trials"],
            f"{plan.base.schedule.epochs} × {data.batches}",
            data.train_up_to or data.leaves,
            data.leaves,
            summary["reached_last_tree"],
            f"{summary['succeeded']} (at most {summary['success_at_most']:g}%)",
            f"{summary['best_error']:.3g}%",
            spaces.index(space) + 1,
        )
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return [*lines, "", *(f"{number}. {space}" for number, space in enumerate(spaces, 1))]


def _range(values: dict[str, Any]) -> str:
    ((kind, bounds),) = values.items()
    return " or ".join(map(str, bounds)) if kind == "choice" else f"{bounds[0]:g} … {bounds[1]:g} ({kind})"


__all__ = ["logs_of", "search_table", "seed_table", "time_table", "write_document"]
