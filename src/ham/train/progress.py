"""The progress of training and evaluation, as it is shown.

On a terminal it is a bar on standard error, in a notebook a bar in the cell's output; elsewhere training is a plain
line an epoch on standard output, and evaluation says nothing.
"""

from __future__ import annotations

import html
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from ham.config import Run
    from ham.train.loop import Epoch, Step

SECONDS_BETWEEN_UPDATES = 0.2
"""Of a notebook's output: every one is a message to the browser."""
WIDTH = 80
"""Columns of an epoch's line, from which the least telling numbers are left out where they do not fit."""


@contextmanager
def counting(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar for `total` things, on a terminal or in a notebook; gives the function that counts them."""
    if in_notebook():
        cell, done = _Cell(transient=True), 0

        def count(more: int) -> None:
            nonlocal done
            done += more
            cell.show(done, total, f"{what}: {done:,} of {total:,}")

        try:
            yield count
        finally:
            cell.close()
        return
    console = Console(stderr=True)
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        bar = progress.add_task(what, total=total)
        yield lambda count: progress.advance(bar, count)


def training(
    events: Iterable[Step | Epoch],
    run: Run,
    done: int = 0,
    console: Console | None = None,
    *,
    part: str = "bit",
) -> None:
    """Follow a run to its end; `done` batches were trained before, and bits or symbols are counted as wrong."""
    if console is None and in_notebook():
        _follow_in_notebook(events, run, done, part)
        return
    console = console or Console(stderr=True)
    if console.is_terminal:
        _bar(events, run, done, console, part)
        return
    for event, _, rate in _paced(events, run, done):
        if line := _line(event, run, rate, part):
            print(line, flush=True)


def in_notebook() -> bool:
    """Whether there is a cell to show something in: IPython's shell has a kernel behind it, not a terminal."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return getattr(shell, "kernel", None) is not None


class _Cell:
    """A bar and a line of text in a notebook's output, replaced again and again."""

    def __init__(self, transient: bool = False):
        from IPython.display import HTML, display

        self._html = HTML
        self._handle = display(HTML(""), display_id=True)
        self._transient = transient
        self._shown, self._last = 0.0, ""

    def show(self, done: int, total: int, text: str) -> None:
        share = 100 * done / max(total, 1)
        # Two boxes, since notebooks leave <progress> without its colours, or out.
        bar = "display:inline-block;height:.6em;border-radius:.3em"
        self._last = (
            f'<span style="{bar};width:12em;background:#8884"><span style="{bar};width:{share:.1f}%;'
            f'background:#0072b2;vertical-align:top"></span></span> {html.escape(text)}'
        )
        if time.monotonic() - self._shown > SECONDS_BETWEEN_UPDATES:
            self._update()

    def close(self) -> None:
        self._last = "" if self._transient else self._last
        self._update()

    def _update(self) -> None:
        self._handle.update(self._html(self._last))
        self._shown = time.monotonic()


def _follow_in_notebook(events: Iterable[Step | Epoch], run: Run, done: int, part: str) -> None:
    cell, last, total = _Cell(), "", run.schedule.epochs * run.data.batches
    try:
        for event, completed, rate in _paced(events, run, done):
            last = _line(event, run, rate, part) or last
            epoch = min(completed // run.data.batches + 1, run.schedule.epochs)
            cell.show(
                completed, total, last or f"epoch {epoch}/{run.schedule.epochs}  {rate:,.0f} examples/s"
            )
    finally:
        cell.close()


def _bar(events: Iterable[Step | Epoch], run: Run, done: int, console: Console, part: str) -> None:
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
            if line := _line(event, run, rate, part):
                shown |= {"error": line.partition("error ")[2].split()[0]}
                progress.console.print(line, highlight=False)
            progress.update(bar, completed=completed, longest=longest, **shown)


def _line(event: Step | Epoch, run: Run, rate: float, part: str) -> str | None:
    """An epoch in one line; nothing for what happens inside one."""
    from ham.train.loop import Epoch

    if not isinstance(event, Epoch):
        return None
    where = f"epoch {event.epoch}/{run.schedule.epochs}  n {event.longest}  error {event.error:.2f}%"
    parts, loss = f"{part}s {event.bit_error:.2f}%", f"loss {event.loss:.4g}"
    pace, elapsed = f"{rate:,.0f}/s", f"{event.seconds:.0f} s"
    told = [where, parts, loss, pace, elapsed, *(["best"] if event.best else [])]
    for least in (pace, elapsed, loss, parts):
        if len("  ".join(told)) > WIDTH:
            told.remove(least)
    return "  ".join(told)


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
