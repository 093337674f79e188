"""Results as plain rows: a list of dicts, which pandas, csv and json take as it is, and which shows as a table."""

from __future__ import annotations

import html
from collections.abc import Iterable
from typing import Any

from ham.core.text import visible

MOST_SHOWN = 40
"""Rows of a table that is shown; the others are only counted."""


class Rows(list[dict[str, Any]]):
    """A list of dicts with the same keys. In a notebook and in a terminal it shows as a table.

    >>> Rows([{"leaves": 32, "error": 0.0}, {"leaves": 128, "error": 0.04}])
    leaves  error
        32      0
       128   0.04
    """

    def __repr__(self) -> str:
        if not self:
            return "Rows([])"
        table = [list(self[0]), *(self._cells(row) for row in self[:MOST_SHOWN])]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = ["  ".join(map(str.rjust, line, widths)) for line in table]
        return "\n".join([*lines, *self._rest()])

    def _repr_html_(self) -> str:
        head = _tags("th", self[0] if self else ())
        body = "".join(f"<tr>{_tags('td', self._cells(row))}</tr>" for row in self[:MOST_SHOWN])
        rest = "".join(f"<p>{line}</p>" for line in self._rest())
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{rest}"

    def _cells(self, row: dict[str, Any]) -> list[str]:
        return [_cell(row.get(name)) for name in self[0]]

    def _rest(self) -> list[str]:
        return [f"… {len(self):,} rows in all"] if len(self) > MOST_SHOWN else []


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.5g}"
    if isinstance(value, (list, tuple)):
        return " – ".join(map(_cell, value))
    return visible(value)


def _tags(tag: str, texts: Iterable[str]) -> str:
    return "".join(f"<{tag}>{html.escape(text)}</{tag}>" for text in texts)


def shortened(values: Iterable[Any], most: int = 8) -> str:
    """A list of values as Python writes it, its end left out if it is long.

    >>> shortened([1, 2, 3]), shortened(range(100), 3)
    ('[1, 2, 3]', '[0, 1, 2, … 97 more]')
    """
    values = list(values)
    shown = [repr(value) for value in values[:most]]
    return f"[{', '.join(shown)}{f', … {len(values) - most} more' if len(values) > most else ''}]"
