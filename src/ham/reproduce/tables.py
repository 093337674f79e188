"""The paper's tables from the shipped models, our figure beside the paper's in every cell."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ham import recipes
from ham.core.errors import InputError
from ham.core.files import write_whole
from ham.core.seeds import Purpose, generator
from ham.core.tables import latex as latex_table
from ham.models import kinds
from ham.reproduce.complexity import Cost
from ham.reproduce.exact import Counted, all_families, families
from ham.runs import PRETRAINED, RunFolder, Trained, load, shipped
from ham.train.evaluate import Score, evaluate_at, wilson
from ham.view.plots import Measured

if TYPE_CHECKING:
    from ham.view.analysis import Finding

Split = Literal["test", "generalisation"]

COLUMNS = {table: tuple(column.title for column in kinds.columns(table)) for table in recipes.TABLES}
SUFFIXES = {column.title: column.suffix for table in recipes.TABLES for column in kinds.columns(table)}
SPLITS: tuple[Split, ...] = ("test", "generalisation")

TIMES_LONGER = (1, 2, 4, 8, 16, 32)
SYMBOLS_FOR_A_POINT = 64_000
"""Longer inputs get fewer examples, so that every point of the curves costs about the same."""

PAPER: dict[tuple[str, str], tuple[float, float]] = {
    ("lstm", "reverse"): (73, 100),
    ("lstm", "search"): (62, 89),
    ("lstm", "merge"): (88, 100),
    ("lstm", "sort"): (99, 100),
    ("lstm", "add"): (39, 100),
    ("lstm+a", "reverse"): (0, 100),
    ("lstm+a", "search"): (0.04, 0.52),
    ("lstm+a", "merge"): (16, 100),
    ("lstm+a", "sort"): (25, 100),
    ("lstm+a", "add"): (0, 100),
    ("lstm+ham", "reverse"): (0, 0),
    ("lstm+ham", "search"): (0.12, 1.68),
    ("lstm+ham", "merge"): (0, 2.48),
    ("lstm+ham", "sort"): (0.04, 0.24),
    ("lstm+ham", "add"): (0, 100),
    ("raw-ham", "stack"): (0, 0),
    ("raw-ham", "queue"): (0, 0),
    ("raw-ham", "priority_queue"): (0.08, 0.2),
}
"""Percent of wrong sequences on test inputs and on inputs 2–4 times longer (Tables 1 and 2)."""
PAPER |= {("ham-paper", task): PAPER[model, task] for model, task in PAPER if not SUFFIXES[model]}


@dataclass(frozen=True)
class Cell:
    """One number of a table, ours and the paper's; errors in percent."""

    model: str
    """Title of its column."""
    task: str
    split: Split
    leaves: int
    examples: int
    wrong: int
    error: float
    bit_error: float
    paper: float | None

    def text(self) -> str:
        """Our error with its 95% interval, and the paper's."""
        low, high = map(two_digits, wilson(self.wrong, self.examples))
        ours = f"{self.error:.3g}% [{low}, {high}]"
        return ours if self.paper is None else f"{ours} · paper {self.paper:g}%"


def two_digits(percent: float) -> str:
    """A bound to two digits, counted from the nearer end: of a bound of 99.847%, the 0.15 that are missing.

    >>> [two_digits(bound) for bound in (0.0, 0.1534, 62.21, 99.847, 100.0)]
    ['0', '0.15', '62', '99.85', '100']
    """
    rounded = float(f"{percent:.2g}") if percent < 50 else 100 - float(f"{100 - percent:.2g}")
    return f"{rounded:g}"


def recipe_of(model: str, task: str) -> str:
    """The name of the recipe, and of the shipped model, behind a cell."""
    return task + SUFFIXES[model]


def wanted(
    table: int | None = None, task: str | None = None, model: str | None = None
) -> list[tuple[str, str]]:
    """The pairs of model and task that a selection covers."""
    pairs = [
        (column, name)
        for number, tasks in recipes.TABLES.items()
        if table in (None, number)
        for name in tasks
        for column in COLUMNS[number]
        if task in (None, name) and model in (None, column)
    ]
    if not pairs:
        raise InputError(f"no cell has table {table}, task {task}, model {model}")
    return pairs


def shipped_models() -> dict[str, Path]:
    """Where each shipped model is, by its recipe's name."""
    return {name: PRETRAINED / name for name in shipped()}


def cells(
    pairs: Sequence[tuple[str, str]], models: Mapping[str, Path], *, examples: int, seed: int
) -> Iterator[tuple[str, Split, Cell | None]]:
    """Evaluate the model behind every cell on fresh examples.

    Gives the model's name, the split, and the cell, or None where there is no such model.
    """
    for model, task in pairs:
        name = recipe_of(model, task)
        trained = load(models[name]) if name in models else None
        for place, split in enumerate(SPLITS):
            if trained is None:
                yield name, split, None
                continue
            score, leaves = score_of(trained, split, examples=examples, seed=seed)
            paper = PAPER.get((model, task))
            yield (
                name,
                split,
                Cell(
                    model=model,
                    task=task,
                    split=split,
                    leaves=leaves,
                    examples=score.examples,
                    wrong=score.wrong,
                    error=score.error,
                    bit_error=score.part_error,
                    paper=float(paper[place]) if paper else None,
                ),
            )


def score_of(trained: Trained, split: Split, *, examples: int, seed: int) -> tuple[Score, int]:
    """The paper's two protocols: the trained size, and four times that with longer inputs only."""
    trained_on = trained.run.data.leaves
    leaves = trained_on if split == "test" else 4 * trained_on
    return evaluate_at(trained, leaves, examples=examples, seed=seed), leaves


def by_length(path: Path, seed: int, most: int = SYMBOLS_FOR_A_POINT) -> Iterator[Measured]:
    """Errors of a model on inputs of the trained length and up to 32 times that, on so many examples at most."""
    trained = load(path)
    for times in TIMES_LONGER:
        leaves = times * trained.run.data.leaves
        score = evaluate_at(
            trained,
            leaves,
            examples=min(most, max(SYMBOLS_FOR_A_POINT // leaves, 50)),
            seed=seed,
        )
        yield Measured(leaves, score.error, *score.interval)


Hard = dict[str, dict[str, list[Counted]]]
"""Wrong answers to hard cases: by task, by family, by the size of the memory."""


def hard_cases(
    pairs: Sequence[tuple[str, str]], models: Mapping[str, Path], *, examples: int, seed: int
) -> Iterator[tuple[str, dict[str, list[Counted]]]]:
    """Each of HAM's models among these cells on the families of its task."""
    for model, task in pairs:
        name = recipe_of(model, task)
        if name in recipes.HARD and name in models:
            yield name, families(load(models[name]), seed, examples)


@dataclass(frozen=True)
class Found:
    """Everything that `ham reproduce` measured."""

    cells: list[Cell]
    hard: Hard
    costs: list[Cost]
    seed: int

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "seed": self.seed,
            "cells": [asdict(cell) for cell in self.cells],
            "hard_cases": [
                {"task": task, "family": family, **counted._asdict()}
                for task, by_family in self.hard.items()
                for family, counts in by_family.items()
                for counted in counts
            ],
            "complexity": [cost.to_json() for cost in self.costs],
        }


def write(folder: Path, found: Found) -> None:
    """Markdown, LaTeX and JSON."""
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / "results.json", (json.dumps(found.to_json(), indent=2) + "\n").encode())
    write_whole(folder / "tables.md", markdown(texts(found)).encode())
    write_whole(folder / "tables.tex", latex(found).encode())


def rows(found: list[Cell], table: int, split: Split) -> list[tuple[str, list[Cell | None]]]:
    """A table's rows: each task with its cells in the order of the columns."""
    by_place = {(cell.model, cell.task, cell.split): cell for cell in found}
    return [
        (task, [by_place.get((column, task, split)) for column in COLUMNS[table]])
        for task in recipes.TABLES[table]
        if any((column, task, split) in by_place for column in COLUMNS[table])
    ]


Text = tuple[str, tuple[str, ...], list[tuple[str, ...]]]
"""A table in words: its title, its columns, and its rows, each with a name first."""


def texts(found: Found) -> list[Text]:
    """Every table that has a cell, the hard cases, and the complexity row if it was measured."""
    tables: list[Text] = [
        (
            f"Table {table}, {title(split)}",
            COLUMNS[table],
            [(task, *(cell.text() if cell else "—" for cell in row)) for task, row in lines],
        )
        for table in COLUMNS
        for split in SPLITS
        if (lines := rows(found.cells, table, split))
    ]
    return [*tables, *_beside(found)]


def _beside(found: Found) -> list[Text]:
    """What is measured beside the errors."""
    return [
        *([hard_rows(found.hard)] if found.hard else []),
        *([complexity_row(found.costs)] if found.costs else []),
    ]


def hard_rows(hard: Hard) -> Text:
    """All families of a task together."""
    together = {task: all_families(by_family) for task, by_family in hard.items()}
    sizes = next(iter(together.values()))
    return (
        "Hard cases, wrong sequences",
        tuple(f"{counted.leaves:,} leaves" for counted in sizes),
        [(task, *(counted.text() for counted in counts)) for task, counts in together.items()],
    )


def complexity_row(costs: list[Cost]) -> Text:
    """Table 1's last row, the paper's and what was measured."""
    return (
        "Table 1, complexity of a timestep",
        tuple(cost.model for cost in costs),
        [
            ("paper", *(f"Θ({cost.paper})" for cost in costs)),
            ("operations", *(cost.fit_of_operations.text() for cost in costs)),
            ("time, µs", *(cost.fit_of_time.text() for cost in costs)),
        ],
    )


def markdown(tables: list[Text]) -> str:
    parts = []
    for heading, columns, lines in tables:
        parts += [
            f"**{heading}**",
            "",
            f"| task | {' | '.join(columns)} |",
            "|---" * (1 + len(columns)) + "|",
        ]
        parts += [f"| {' | '.join(line)} |" for line in lines] + [""]
    return "\n".join(parts)


def latex(found: Found) -> str:
    """The tables as a paper has them: errors, and the paper's in brackets."""

    def short(cell: Cell | None) -> str:
        if cell is None:
            return "–"
        return f"{cell.error:.3g}%" + ("" if cell.paper is None else f" ({cell.paper:g}%)")

    errors: list[Text] = [
        (title(split), COLUMNS[table], [(task, *map(short, row)) for task, row in lines])
        for table in COLUMNS
        for split in SPLITS
        if (lines := rows(found.cells, table, split))
    ]
    return "\n".join(
        latex_table((heading, *columns), lines, right=columns)
        for heading, columns, lines in [*errors, *_beside(found)]
    )


def title(split: Split) -> str:
    return "test error" if split == "test" else "2–4× longer inputs"


def write_report(
    folder: Path, found: Found, models: Mapping[str, Path], note: str, count: Callable[[int], None]
) -> Path:
    """`index.html`: the live page of all shipped models, the tables, plots and the analysis figure."""
    from ham.use.trace import portable
    from ham.view.report import write_report

    measured: dict[str, dict[str, list[Measured]]] = {}
    trained_on: dict[str, dict[str, int]] = {}
    logs: dict[str, dict[str, list[dict]]] = {}
    for model, task in dict.fromkeys((cell.model, cell.task) for cell in found.cells):
        folder_of_model = models[recipe_of(model, task)]
        run = RunFolder(folder_of_model)
        points = _until_all_wrong(by_length(folder_of_model, found.seed, found.cells[0].examples))
        measured.setdefault(task, {})[model] = list(points)
        trained_on.setdefault(task, {})[model] = run.run().data.leaves
        logs.setdefault(task, {})[model] = run.metrics()
        count(1)
    hard = [name for name in shipped() if name in recipes.HARD]
    figure = analysis(folder)
    live = [portable(load(name)) for name in hard]
    shown = [(figure.file, figure.caption)]
    return write_report(folder, texts(found), note, measured, trained_on, logs, live, shown)


def _until_all_wrong(points: Iterable[Measured]) -> Iterator[Measured]:
    """Where every sequence is wrong, longer ones need no look, and with soft attention they cost the most."""
    for point in points:
        yield point
        if point.error == 100:
            return


@dataclass(frozen=True)
class Analysed:
    """The analysis figure, and what was found."""

    file: str
    caption: str
    finding: Finding


def analysis(folder: Path, inputs: int = 600) -> Analysed:
    """The analysis figure of section 3.4, from the shipped Sort4."""
    from ham.use.trace import trace, traces
    from ham.view.analysis import PAPER_INPUT, decipher, write_figure

    trained = load("sort4")
    leaves = trained.run.data.leaves
    questions = generator(Purpose.TEST, 0).integers(0, 16, (inputs, leaves)).tolist()
    finding = decipher(traces(trained, questions, leaves=leaves))
    write_figure(trace(trained, list(PAPER_INPUT), leaves=leaves), finding, folder)
    caption = (
        f"Two timesteps of Sort4. Coordinate {finding.coordinate + 1} says best on which side the minimum lies: "
        f"right in {100 * finding.accuracy:.1f}% of held-out cases, mean over inner nodes."
    )
    return Analysed("analysis.svg", caption, finding)
