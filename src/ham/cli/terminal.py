"""Tables, as a person sees them in the terminal."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterable, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ham.core.text import visible

WIDTH = 80
LEAST_WIDTH = 40
"""Narrower tables would show nothing of what is in them."""


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[str] = ()) -> None:
    """Print a table on standard output; into a file or pipe no line is wrapped, unless $COLUMNS asks for it."""
    console = Console(highlight=False)
    if not (console.width and (console.is_terminal or "COLUMNS" in os.environ)):
        console = Console(highlight=False, width=10_000)
    elif console.width < LEAST_WIDTH:
        console = Console(highlight=False, width=LEAST_WIDTH)
    grid = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, collapse_padding=True)
    for column in columns:
        grid.add_column(column, justify="right" if column in right else "left", overflow="fold")
    for row in rows:
        grid.add_row(*(Text(visible(cell)) for cell in row))
    with console.capture() as captured:
        console.print(grid)
    print(captured.get(), end="")  # rich itself would end the program if its reader has gone


def paragraph(text: str) -> None:
    """Print sentences, in lines that fit any terminal."""
    for line in text.split("\n"):
        print(textwrap.fill(line, WIDTH, break_long_words=False, break_on_hyphens=False))


def percent(value: float) -> str:
    return f"{value:.2f}%"
