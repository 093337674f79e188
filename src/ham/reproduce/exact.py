"""How far the models stay exact: wrong sequences by length, to thousands of times the trained one, and on hard cases.

Counts, not percentages: of a zero, how many were asked is all that tells.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from ham.core.rows import Rows
from ham.runs import Trained
from ham.train.evaluate import evaluate_at, wilson
from ham.use.stress import SIZES, stress
from ham.view.plots import Measured

ASKED = {32: 10_000, 128: 10_000, 1024: 500, 4096: 100, 16_384: 20, 131_072: 8}
"""Leaves, and how many sequences are asked there."""
HARD_ASKED = 50
"""Of each family of hard cases, in each size of memory."""


class Counted(NamedTuple):
    """Sequences wrong of those asked, in a memory of some size."""

    leaves: int
    wrong: int
    asked: int

    def text(self) -> str:
        return f"{self.wrong:,} of {self.asked:,}"

    @property
    def percent(self) -> Measured:
        """The share of them, for a plot."""
        return Measured(self.leaves, 100 * self.wrong / self.asked, *wilson(self.wrong, self.asked))


def by_length(trained: Trained, seed: int, asked: Mapping[int, int]) -> Iterator[Counted]:
    """Wrong sequences by the size of the memory; where all are wrong, longer ones need no look."""
    for leaves, examples in asked.items():
        score = evaluate_at(trained, leaves, examples=examples, seed=seed)
        yield Counted(leaves, score.wrong, examples)
        if score.wrong == examples:
            return


def length_table(found: Mapping[str, Sequence[Counted]]) -> list[str]:
    """By model and size, as Markdown."""
    return size_table({name: {one.leaves: one.text() for one in counts} for name, counts in found.items()})


def size_table(rows: Mapping[str, Mapping[int, str]]) -> list[str]:
    """Cells by name and by leaves, as Markdown; those that a row has not are empty."""
    sizes = sorted({leaves for cells in rows.values() for leaves in cells})
    return [
        f"| leaves | {' | '.join(f'{leaves:,}' for leaves in sizes)} |",
        "|---" * (1 + len(sizes)) + "|",
        *(
            f"| {name} | {' | '.join(cells.get(leaves, '') for leaves in sizes)} |"
            for name, cells in rows.items()
        ),
    ]


def families(
    trained: Trained, seed: int, examples: int, sizes: Sequence[int] = SIZES
) -> dict[str, list[Counted]]:
    """Hard cases: wrong ones of each family by the size of the memory; those that were practised have a star."""
    found: dict[str, list[Counted]] = {}
    rows: Rows = stress(trained, leaves=sizes, examples=examples, seed=seed)
    for row in rows:
        name = f"{row['family']}{' *' if row['practised'] else ''}"
        found.setdefault(name, []).append(Counted(row["leaves"], row["wrong"], row["examples"]))
    return found


def family_table(found: Mapping[str, Sequence[Counted]]) -> list[str]:
    """By family and size, as Markdown: wrong ones of as many as the first line says."""
    first = next(iter(found.values()))
    return [
        f"| wrong of {first[0].asked} | {' | '.join(f'{one.leaves:,} leaves' for one in first)} |",
        "|---" * (1 + len(first)) + "|",
        *(f"| {name} | {' | '.join(str(one.wrong) for one in counts)} |" for name, counts in found.items()),
    ]


def all_families(found: Mapping[str, Sequence[Counted]]) -> list[Counted]:
    """The families of a task together, by size."""
    return [
        Counted(of_size[0].leaves, sum(one.wrong for one in of_size), sum(one.asked for one in of_size))
        for of_size in zip(*found.values(), strict=True)
    ]


__all__ = ["Counted", "all_families", "by_length", "families", "family_table", "length_table", "size_table"]
