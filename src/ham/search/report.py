"""What a search leaves for people: the best trials, what mattered, a recipe to train again."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ham.core.files import write_whole
from ham.core.text import markdown_code, markdown_text, shell_word
from ham.search.plan import Outcome, Plan, SearchFolder, ranked
from ham.search.space import Choice, Range, setting, short, shown
from ham.train.evaluate import wilson
from ham.view.drawing import blank, drawn, matplotlib

BEST, RESULTS, FIGURE = "best.json", "results.json", "search.png"
MOST_SHOWN = 10


def write(folder: SearchFolder, plan: Plan, outcomes: Sequence[Outcome]) -> None:
    """Write the report, the results as JSON, and in a search the figure and the best trial's recipe."""
    results = {"summary": summary(plan, outcomes), "trials": [_record(plan, outcome) for outcome in outcomes]}
    write_whole(folder.path / RESULTS, (json.dumps(results, indent=2) + "\n").encode())
    best = ranked(outcomes)[:1]
    if plan.sweep:
        write_whole(folder.path / "sweep.md", _sweep_page(folder, plan, outcomes).encode())
        return
    for outcome in best:
        write_whole(folder.path / BEST, outcome.recipe.to_json().encode())
    drawn = figure(folder.path / FIGURE, plan, outcomes) if best else False
    write_whole(folder.path / "search.md", _search_page(folder, plan, outcomes, drawn).encode())


def summary(plan: Plan, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Counts and errors over all trials.

    The error is that of validation on the last tree; a trial that never got there counts as 100%.
    """
    ended = [outcome for outcome in outcomes if outcome.ended]
    errors = [error_of(outcome) for outcome in ended]
    succeeded = sum(outcome.succeeded(plan.success) for outcome in ended)
    counts = {
        status: sum(outcome.status == status for outcome in outcomes)
        for status in ("finished", "stopped", "diverged", "failed", "open")
    }
    return {
        "trials": len(outcomes),
        **counts,
        "reached_last_tree": sum(outcome.reached for outcome in ended),
        "success_at_most": plan.success,
        "succeeded": succeeded,
        "success_rate": succeeded / len(ended) if ended else None,
        "success_interval": [bound / 100 for bound in wilson(succeeded, len(ended))] if ended else None,
        "mean_error": statistics.fmean(errors) if errors else None,
        "median_error": statistics.median(errors) if errors else None,
        "best_error": min(errors, default=None),
        "worst_error": max(errors, default=None),
    }


def error_of(outcome: Outcome) -> float:
    """Percent of wrong validation sequences on the last tree."""
    return outcome.best["error"] if outcome.best is not None and outcome.reached else 100.0


def cells(outcome: Outcome) -> list[str]:
    """A trial as a row of the tables: number, state, n, error, bit error, loss, epochs, seconds."""
    best = outcome.best
    measured = ["–"] * 4
    if best is not None:
        measured = [
            str(best["longest"]),
            f"{best['error']:.2f}%",
            f"{best['bit_error']:.4f}%",
            f"{best['loss']:.4f}",
        ]
    return [str(outcome.number), outcome.status, *measured, str(outcome.epochs), f"{outcome.seconds:.0f}"]


COLUMNS = ("state", "n", "error", "bit error", "loss", "epochs", "seconds")


def in_words(plan: Plan, outcomes: Sequence[Outcome]) -> str:
    """The summary in two or three sentences."""
    found = summary(plan, outcomes)
    states = ", ".join(
        f"{found[status]} {words}"
        for status, words in (
            ("finished", "ran to their end"),
            ("stopped", "were stopped as hopeless"),
            ("diverged", "diverged"),
            ("failed", "failed"),
            ("open", "are unfinished"),
        )
        if found[status]
    )
    text = f"Of {found['trials']} {'seeds' if plan.sweep else 'trials'} {states}."
    ended = sum(found[status] for status in ("finished", "stopped", "diverged"))
    if not ended:
        return text
    low, high = found["success_interval"]
    leaves = plan.base.data.leaves
    text += (
        f" {found['succeeded']} of {ended} succeeded ({100 * found['success_rate']:.0f}%, 95% interval "
        f"{100 * low:.0f}–{100 * high:.0f}%), that is validated at {found['success_at_most']:g}% wrong or less "
        f"on the last tree{f' (n = {leaves})' if 'data.leaves' not in plan.space else ''}."
    )
    if plan.sweep:
        text += (
            f" Error there: mean {found['mean_error']:.2f}%, median {found['median_error']:.2f}%, "
            f"best {found['best_error']:.2f}%, worst {found['worst_error']:.2f}% "
            "(a seed that never got there counts as 100%)."
        )
    return text


def figure(path: Path, plan: Plan, outcomes: Sequence[Outcome]) -> bool:
    """Error over each setting that was searched, coloured by the tree reached; whether there was any."""
    colormaps = matplotlib().colormaps
    from matplotlib.ticker import NullFormatter

    measured = [outcome for outcome in outcomes if outcome.best is not None]
    names = [name for name in plan.space if len({setting(outcome.run, name) for outcome in measured}) > 1]
    if not names:
        return False
    columns = min(3, len(names))
    rows = math.ceil(len(names) / columns)
    page = blank(4.0 * columns, 3.0 * rows)
    axes = page.subplots(rows, columns, squeeze=False, sharey=True).flat
    stages = sorted({outcome.best["longest"] for outcome in measured if outcome.best})
    colours = colormaps["viridis_r"](np.linspace(0.15, 1, len(stages)))
    for name, axis in zip(names, axes, strict=False):
        values = plan.space[name]
        for longest, colour in zip(stages, colours, strict=True):
            of_stage = [
                outcome for outcome in measured if outcome.best and outcome.best["longest"] == longest
            ]
            axis.plot(
                [_place(values, outcome, name) for outcome in of_stage],
                [outcome.best["error"] for outcome in of_stage if outcome.best],
                "o",
                color=colour,
                label=f"n = {longest}",
            )
        if isinstance(values, Choice):
            axis.set_xticks(range(len(values.options)), [shown(option) for option in values.options])
            axis.set_xlim(-0.5, len(values.options) - 0.5)
        elif values.log:
            axis.set_xscale("log")
            axis.xaxis.set_minor_formatter(NullFormatter())
        axis.set_xlabel(short(name))
        axis.set_ylim(-3, 103)
    for axis in list(axes)[len(names) :]:
        axis.set_visible(False)
    for row in range(rows):
        page.axes[row * columns].set_ylabel("validation error, %")
    handles, labels = page.axes[0].get_legend_handles_labels()
    page.legend(
        handles, labels, loc="outside upper center", ncols=len(stages), title="longest inputs reached"
    )
    write_whole(path, drawn(page, "png", dpi=110))
    return True


def _place(values: Range | Choice, outcome: Outcome, name: str) -> Any:
    """Where a trial stands across; at a choice beside the others of the same value, by its number."""
    value = setting(outcome.run, name)
    if isinstance(values, Range):
        return value
    return values.options.index(value) + (outcome.number * 0.618034 % 1 - 0.5) * 0.4


def _record(plan: Plan, outcome: Outcome) -> dict[str, Any]:
    best = outcome.best or {}
    return {
        "number": outcome.number,
        "seed": outcome.run.seed,
        "status": outcome.status,
        "settings": {name: setting(outcome.run, name) for name in plan.space},
        **{name: _finite(best.get(name)) for name in ("longest", "error", "bit_error", "loss", "epoch")},
        "epochs": outcome.epochs,
        "seconds": outcome.seconds,
        "succeeded": outcome.succeeded(plan.success),
        "message": outcome.last_words,
    }


def _finite(value: Any) -> Any:
    """JSON has no word for what is not a number."""
    return None if value is None or not math.isfinite(value) else value


def _search_page(folder: SearchFolder, plan: Plan, outcomes: Sequence[Outcome], drawn: bool) -> str:
    best = ranked(outcomes)
    lines = [
        f"# Search: {markdown_text(plan.base.task)}, {plan.base.model.kind}",
        "",
        in_words(plan, outcomes),
        "",
        f"Search seed {plan.seed}, {plan.backend} backend. Trials are compared by the largest tree they "
        "reached, then by validation error, then by loss.",
        "",
    ]
    if best:
        number = best[0].number
        lines += [
            "## The best",
            "",
            *_table(
                ("trial", *COLUMNS, *map(short, plan.space)),
                [
                    [*cells(outcome), *(shown(setting(outcome.run, name)) for name in plan.space)]
                    for outcome in best[:MOST_SHOWN]
                ],
            ),
            "",
            f"Train the best again, to the same weights: {_command('train --recipe', folder.path / BEST)}",
            "",
            f"Measure it on data that chose nothing: {_command('evaluate', folder.trial(number).path)} (the error "
            "above is the best of many, so it flatters).",
            "",
        ]
        if best[0].status != "finished":
            lines += [
                f"Trial {number} had not ended: the recipe trains the {best[0].epochs} epochs it had. To go on "
                f"from there instead: {_command('train --resume', folder.trial(number).path)}",
                "",
            ]
    if drawn:
        lines += ["## Error over each setting", "", f"![Error over each setting]({FIGURE})", ""]
    lines += [
        "## What was searched",
        "",
        *_table(("setting", "values"), [[f"`{name}`", str(values)] for name, values in plan.space.items()]),
        "",
        *_troubles(outcomes),
    ]
    return "\n".join(lines)


def _sweep_page(folder: SearchFolder, plan: Plan, outcomes: Sequence[Outcome]) -> str:
    return "\n".join(
        [
            f"# Seeds: {markdown_text(plan.base.task)}, {plan.base.model.kind}",
            "",
            in_words(plan, outcomes),
            "",
            *_table(("seed", *COLUMNS), [cells(outcome) for outcome in outcomes]),
            "",
            f"{plan.backend} backend. Each seed's run is in {markdown_code(folder.path / 'trials')}.",
            "",
            *_troubles(outcomes),
        ]
    )


def _command(words: str, path: Path) -> str:
    return markdown_code(f"ham {words} {shell_word(path)}")


def _troubles(outcomes: Sequence[Outcome]) -> list[str]:
    troubled = [outcome for outcome in outcomes if outcome.status in ("failed", "diverged")]
    if not troubled:
        return []
    rows = [[str(o.number), o.status, markdown_text(o.last_words)] for o in troubled]
    return ["## What went wrong", "", *_table(("trial", "state", "why"), rows), ""]


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    body = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns), *body]
