"""What a person sees in the terminal: tables, and the progress of training and evaluation.

On a terminal progress is a bar on standard error; elsewhere training is a plain line an epoch.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from ham.core.text import visible

if TYPE_CHECKING:
    from ham.config import Run
    from ham.train.loop import Epoch, Step


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[str] = ()) -> None:
    """Print a table on standard output; into a file or pipe no line is wrapped, unless $COLUMNS asks for it."""
    console = Console(highlight=False)
    if not (console.is_terminal or "COLUMNS" in os.environ):
        console = Console(highlight=False, width=10_000)
    grid = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, collapse_padding=True)
    for column in columns:
        grid.add_column(column, justify="right" if column in right else "left", overflow="fold")
    for row in rows:
        grid.add_row(*(Text(visible(cell)) for cell in row))
    with console.capture() as captured:
        console.print(grid)
    print(captured.get(), end="")  # rich itself would end the program if its reader has gone


def percent(value: float) -> str:
    return f"{value:.2f}%"


@contextmanager
def counting(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar for `total` things, shown on a terminal only; gives the function that counts them."""
    console = Console(stderr=True)
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task(what, total=total)
        yield lambda count: progress.advance(bar, count)


def training(events: Iterable[Step | Epoch], run: Run, done: int = 0, console: Console | None = None) -> None:
    """Follow a run to its end; `done` batches were trained before."""
    console = console or Console(stderr=True)
    if console.is_terminal:
        _bar(events, run, done, console)
        return
    for event, _, rate in _paced(events, run, done):
        if line := _line(event, run, rate):
            print(line, flush=True)


def _bar(events: Iterable[Step | Epoch], run: Run, done: int, console: Console) -> None:
    columns = (
        TextColumn("epoch {task.fields[epoch]}"),
        BarColumn(bar_width=None),
        TextColumn("error {task.fields[error]}  n {task.fields[longest]}  {task.fields[rate]} examples/s"),
        TimeRemainingColumn(),
        TextColumn("left at most"),
    )
    shown: dict[str, Any] = {
        "epoch": f"{done // run.data.batches + 1}/{run.schedule.epochs}",
        "error": "–",
        "rate": "–",
    }
    longest = run.data.start
    with Progress(*columns, console=console) as progress:
        total = run.schedule.epochs * run.data.batches
        bar = progress.add_task("", total=total, completed=done, longest=longest, **shown)
        for event, completed, rate in _paced(events, run, done):
            longest = max(longest, event.longest)  # batches of shorter inputs are mixed in
            shown |= {
                "epoch": f"{min(completed // run.data.batches + 1, run.schedule.epochs)}/{run.schedule.epochs}"
            }
            shown |= {"rate": f"{rate:,.0f}"}
            if line := _line(event, run, rate):
                shown |= {"error": line.partition("error ")[2].split()[0]}
                progress.console.print(line, highlight=False)
            progress.update(bar, completed=completed, longest=longest, **shown)


def _line(event: Step | Epoch, run: Run, rate: float) -> str | None:
    """An epoch in one line; nothing for what happens inside one."""
    from ham.train.loop import Epoch

    if not isinstance(event, Epoch):
        return None
    return (
        f"epoch {event.epoch}/{run.schedule.epochs}  n {event.longest}  error {percent(event.error)}  "
        f"bits {percent(event.bit_error)}  loss {event.loss:.4f}  {rate:,.0f} examples/s  "
        f"{event.seconds:.0f} s{'  best' if event.best else ''}"
    )


def _paced(events: Iterable[Step | Epoch], run: Run, done: int) -> Iterator[tuple[Step | Epoch, int, float]]:
    """Each event with the batches trained so far and the examples per second lately."""
    from ham.train.loop import Step

    before, then, rate = done, time.monotonic(), 0.0
    for event in events:
        if isinstance(event, Step):
            completed = event.epoch * run.data.batches + event.batch
        else:
            completed = event.epoch * run.data.batches
        now = time.monotonic()
        if isinstance(event, Step) or not rate:  # an epoch ends with its validation: that is no pace
            rate = (completed - before) * run.data.batch / max(now - then, 1e-9)
        yield event, completed, rate
        before, then = completed, time.monotonic()
