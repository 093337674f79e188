"""Tables on standard output, in the form that was asked for: for a person, or for another program."""

from __future__ import annotations

import json as json_text
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from ham.cli.arguments import Switch, together
from ham.core.errors import InputError
from ham.core.tables import comma_separated, latex, latex_text


@dataclass(frozen=True)
class Table:
    """A table as a person reads it."""

    columns: Sequence[str]
    rows: Iterable[Sequence[str]]
    right: Sequence[str] = ()
    """Columns of numbers."""


@dataclass(frozen=True)
class Form:
    """How a command prints its tables."""

    json: Switch = False
    """print JSON instead of a table."""
    csv: Switch = False
    """print comma-separated values instead, numbers as they are."""
    latex: Switch = False
    """print LaTeX instead."""

    def __post_init__(self) -> None:
        if self.json + self.csv + self.latex > 1:
            raise InputError("give one of --json, --csv and --latex")

    @property
    def for_a_person(self) -> bool:
        return not (self.json or self.csv or self.latex)

    def show(
        self,
        tables: Sequence[Table],
        records: Sequence[Mapping[str, Any]],
        data: Any = None,
        note: str = "",
    ) -> None:
        """Print tables, with a note before them for a person.

        `records` are the same as plain values, a mapping a line; `data` is all of it for JSON.
        """
        if self.json:
            print(json_text.dumps({"rows": records} if data is None else data, indent=2))
        elif self.csv:
            print(comma_separated(records), end="")
        elif self.latex:
            texts = [latex(table.columns, table.rows, table.right) for table in tables]
            print("\n".join([*([f"% {latex_text(note.strip())}"] if note else []), *texts]), end="")
        else:
            from ham.cli import terminal

            if note:
                terminal.paragraph(note)
            for number, table in enumerate(tables):
                if number:
                    print()
                terminal.table(table.columns, table.rows, table.right)


Forms = Annotated[Form, together()]
"""A command's parameter: the three flags, and what prints its tables."""
TABLE = Form()
