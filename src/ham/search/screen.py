"""What a person sees while a search runs: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ham.core.text import visible
from ham.search.plan import Outcome, Plan, standings

NO_REASON = "no reason given"
ROWS = 16
"""Trials in the live table: those that run, then the best of the others."""


class Board:
    """Where all trials of a search stand, as told by the engine."""

    def __init__(self, plan: Plan, done: Sequence[Outcome], hours: float | None, console: Console):
        self.plan = plan
        self.console = console
        self.began = time.monotonic()
        self.until = None if hours is None else self.began + hours * 3600
        self.states: dict[int, str] = {outcome.number: outcome.status for outcome in done if outcome.ended}
        self.standings: dict[int, dict[str, Any]] = {}
        for outcome in done:
            for standing in standings(outcome.records):
                self.standings[outcome.number] = standing
        self.took: list[float] = []
        self.started: dict[int, float] = {}
        self.lock = threading.Lock()

    def running(self, number: int) -> None:
        with self.lock:
            self.states[number] = "running"
            self.started.setdefault(number, time.monotonic())

    def reported(self, number: int, standing: dict[str, Any]) -> None:
        with self.lock:
            self.standings[number] = standing

    def again(self, number: int, why: str) -> None:
        """A trial is to be tried again, from its last state; without a reason because its worker was lost."""
        why = (why.strip().splitlines() or [""])[-1]
        with self.lock:
            self.states[number] = "waiting"
        what = f"failed and is tried again: {why}" if why else "lost its worker and goes on elsewhere"
        self.say(f"{self._name(number)} {what}")

    def ended(self, outcome: Outcome) -> None:
        with self.lock:
            self.states[outcome.number] = outcome.status
            if outcome.ended and outcome.number in self.started:
                self.took.append(time.monotonic() - self.started[outcome.number])
        if outcome.status == "failed":
            self.say(f"{self._name(outcome.number)} failed: {outcome.last_words or NO_REASON}")
        elif not self.console.is_terminal:
            self.say(f"{self._line(outcome)}  ({self.summary()})")

    def say(self, line: str) -> None:
        self.console.print(visible(line), highlight=False, markup=False, soft_wrap=True)

    def summary(self) -> str:
        """All of it in one line."""
        with self.lock:
            running = sum(state == "running" for state in self.states.values())
            over = sum(state not in ("running", "waiting") for state in self.states.values())
        total = len(self.plan.numbers)
        parts = [
            f"{over} of {total} trials",
            f"{running} running",
            f"{_clock(time.monotonic() - self.began)} so far",
        ]
        left = self.seconds_left(total - over - running, running)
        if left is not None and over < total:
            parts.append(f"about {_clock(left)} left")
        return ", ".join(parts)

    def seconds_left(self, waiting: int, running: int) -> float | None:
        """A guess from the trials that ended, bounded by the time there is."""
        bound = None if self.until is None else max(self.until - time.monotonic(), 0.0)
        if not self.took or not waiting + running:
            return bound
        mean = sum(self.took) / len(self.took)
        now = time.monotonic()
        with self.lock:
            rest = sum(
                max(mean - (now - self.started[number]), 0.0)
                for number, state in self.states.items()
                if state == "running" and number in self.started
            )
        guess = (rest + waiting * mean) / max(running, 1)
        return guess if bound is None else min(guess, bound)

    def __rich__(self) -> Group:
        table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
        numbers = "seed" if self.plan.sweep else "trial"
        for name in (numbers, "state", "epoch", "n reached", "error", "seconds"):
            table.add_column(name, justify="left" if name == "state" else "right")
        with self.lock:
            rows = sorted(self.states, key=self._place)
            for number in rows[:ROWS]:
                standing = self.standings.get(number)
                cells = ["–"] * 4
                if standing:
                    cells = [
                        str(standing["epoch"]),
                        str(standing["longest"]),
                        f"{standing['error']:.2f}%",
                        f"{standing['seconds']:.0f}",
                    ]
                table.add_row(str(number), self.states[number], *cells)
            hidden = len(rows) - ROWS
        more = [Text(f"and {hidden} more", style="dim")] if hidden > 0 else []
        return Group(table, *more, Text(self.summary()))

    def _place(self, number: int) -> tuple[bool, float]:
        standing = self.standings.get(number)
        return self.states[number] != "running", -(standing["score"] if standing else -1.0)

    def _name(self, number: int) -> str:
        return f"{'seed' if self.plan.sweep else 'trial'} {number}"

    def _line(self, outcome: Outcome) -> str:
        best = outcome.best
        if best is None:
            return f"{self._name(outcome.number)}: {outcome.status}, no epoch done"
        return (
            f"{self._name(outcome.number)}: {outcome.status} after {outcome.epochs} epochs, {outcome.seconds:.0f} s, "
            f"n {best['longest']}, error {best['error']:.2f}%"
        )


@contextmanager
def shown(plan: Plan, done: Sequence[Outcome], hours: float | None) -> Iterator[Board]:
    """A board that is on the screen as long as the search runs."""
    console = Console(stderr=True)
    board = Board(plan, done, hours, console)
    if not console.is_terminal:
        yield board
        return
    with Live(board, console=console, refresh_per_second=2, transient=True):
        yield board


def _clock(seconds: float) -> str:
    """Hours, minutes and seconds.

    >>> _clock(3671.0)
    '1:01:11'
    """
    whole = int(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"
