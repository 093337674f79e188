"""Pages that a command wrote: what stands between marks, and how to tell that it is stale.

    python -m ham.reproduce.pages docs/results.md README.md

writes the README's tables anew from what `ham reproduce --document` measured.
"""

from __future__ import annotations

import hashlib
import re
import sys
from pathlib import Path

from ham.core.errors import InputError
from ham.core.files import read_text, write_whole
from ham.models import kinds
from ham.runs import CHECKPOINT, PRETRAINED, shipped

EXACT = "How far it is exact"
"""The part of the page that has counts by length."""
NAMES = {"": "HAM", kinds.PAPER: "HAM to the letter"}
"""Columns of the README's tables whose name is not that of their recipes."""
SPLITS = {"test": "test error", "longer": "2–4× longer inputs"}


def between(text: str, name: str) -> tuple[str, str, str]:
    """A page before a block, the block itself, and what follows; its marks belong to the outside."""
    begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
        raise InputError(f"a page should have one block between {begin.strip()} and {end}")
    before, rest = text.split(begin)
    block, after = rest.split(end)
    return before + begin, block, end + after


def replaced(text: str, name: str, block: str) -> str:
    """A page with another block."""
    before, _, after = between(text, name)
    return f"{before}{block}\n{after}"


def fingerprint() -> str:
    """Twelve digits that are others as soon as any shipped model is."""
    digest = hashlib.sha256()
    for name in shipped():
        digest.update(name.encode() + b"\0" + (PRETRAINED / name / CHECKPOINT).read_bytes())
    return digest.hexdigest()[:12]


def tables_of(results: str) -> dict[str, dict[str, dict[str, str]]]:
    """The tables of a page: by title, by task, by column."""
    found: dict[str, dict[str, dict[str, str]]] = {}
    for title, table in re.findall(r"\*\*(.+?)\*\*\n\n((?:\|.*\n)+)", results):
        header, _, *lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()]
        found[title] = {line[0]: dict(zip(header[1:], line[1:], strict=True)) for line in lines}
    return found


def columns() -> dict[str, list[str]]:
    """The README's columns, each with those of the two tables that it is made of."""
    found: dict[str, list[str]] = {}
    for column in (*kinds.columns(1), *kinds.columns(2)):
        name = NAMES.get(column.suffix, column.suffix.removeprefix("-").upper())
        found.setdefault(name, []).append(column.title)
    return found


def short_tables(results: str) -> str:
    """The README's tables: ours, and the paper's figure in brackets."""
    tables, own = tables_of(results), columns()
    parts = []
    for name, title in SPLITS.items():
        lines = [f"| {name}, ours (the paper's) | {' | '.join(own)} |", "|---" * (1 + len(own)) + "|"]
        for number in (1, 2):
            for task, cells in tables[f"Table {number}, {title}"].items():
                by_column = [next((cells[one] for one in ones if one in cells), "—") for ones in own.values()]
                named = "".join(word.capitalize() for word in task.split("_"))
                lines.append(f"| {named} | {' | '.join(map(_short, by_column))} |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def _short(cell: str) -> str:
    """>>> _short("64.1% [62.2, 65.9] · paper 73%"), _short("8.56% [7.53, 9.72]"), _short("—")
    ('64.1 (73)', '8.56', '—')
    """
    ours, _, paper = cell.partition(" · paper ")
    ours = ours.partition("%")[0]
    return f"{ours} ({paper.removesuffix('%')})" if paper else ours


def table_under(results: str, heading: str) -> str:
    """The first table under a heading of a page."""
    found = re.search(rf"^## {re.escape(heading)}\n(?:(?!## ).*\n)*?((?:\|.*\n)+)", results, re.MULTILINE)
    if not found:
        raise InputError(f"the page has no table under {heading!r}")
    return found[1].rstrip()


def write_readme(results: Path, readme: Path) -> None:
    """The README's tables from the page that has all results."""
    measured = read_text(results)
    text = replaced(read_text(readme), "results", short_tables(measured))
    write_whole(readme, replaced(text, "exact", table_under(measured, EXACT)).encode())


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python -m ham.reproduce.pages docs/results.md README.md")
    write_readme(Path(sys.argv[1]), Path(sys.argv[2]))
