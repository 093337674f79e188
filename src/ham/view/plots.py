"""Curves of one or several runs: learning, decision entropy, error by length. Draws records, runs nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ham.core.errors import InputError
from ham.core.files import write_whole
from ham.view.drawing import blank, drawn, label, matplotlib

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's colours; lines also differ in style, so that none depends on colour alone.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
STYLES = ("-", "--", "-.", ":")


@dataclass(frozen=True)
class Measured:
    """Error at one size of memory, in percent, with its confidence interval."""

    leaves: int
    error: float
    low: float
    high: float


def learning(runs: Mapping[str, Sequence[dict[str, Any]]]) -> Figure:
    """Validation error of each run (training error thin), above the size of its tree, by epoch."""
    with _style():
        figure = blank(7.0, 4.8)
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=(4, 1))
        for look, (name, records) in zip(_looks(), runs.items(), strict=False):
            epochs = [record["epoch"] for record in records]
            above.plot(epochs, [record["error"] for record in records], label=label(name), **look)
            faint = {**look, "linewidth": 0.8, "alpha": 0.6}
            above.plot(epochs, [record["train_error"] for record in records], **faint)
            below.step(epochs, [record["longest"] for record in records], where="mid", **look)
        _percent_axis(above)
        above.set_ylabel("wrong sequences, %\n(thin: in training)")
        below.set_yscale("log", base=2)
        sizes = sorted({record["longest"] for records in runs.values() for record in records})
        below.set_yticks(sizes, [str(size) for size in sizes])
        below.minorticks_off()
        below.set_ylabel("longest input")
        below.set_xlabel("epoch")
        above.legend()
    return figure


def entropy(runs: Mapping[str, Sequence[dict[str, Any]]]) -> Figure:
    """Mean entropy of a decision, by epoch; a coin has log 2 = 0.69."""
    with _style():
        figure = blank(7.0, 3.6)
        axes = figure.subplots()
        for look, (name, records) in zip(_looks(), runs.items(), strict=False):
            positive = [max(record["entropy"], 1e-9) for record in records]
            axes.plot([record["epoch"] for record in records], positive, label=label(name), **look)
        axes.set_yscale("log")
        axes.set_ylabel("entropy of a decision, nats")
        axes.set_xlabel("epoch")
        axes.legend()
    return figure


def error_by_length(runs: Mapping[str, Sequence[Measured]], trained_on: Mapping[str, int]) -> Figure:
    """Error against the size of the memory; bars are 95% intervals, the ring is where training ended."""
    with _style():
        figure = blank(7.0, 3.8)
        axes = figure.subplots()
        for look, (name, points) in zip(_looks(), runs.items(), strict=False):
            sizes = [point.leaves for point in points]
            bars = [
                [point.error - point.low for point in points],
                [point.high - point.error for point in points],
            ]
            errors = [point.error for point in points]
            axes.errorbar(
                sizes, errors, bars, label=label(name), marker=".", capsize=3, elinewidth=0.8, **look
            )
            for point in points:
                if point.leaves == trained_on[name]:
                    axes.plot(
                        point.leaves, point.error, "o", color=look["color"], markersize=9, fillstyle="none"
                    )
        axes.set_xscale("log", base=2)
        measured = sorted({point.leaves for points in runs.values() for point in points})
        axes.set_xticks(measured, [f"{leaves:,}" for leaves in measured])
        _percent_axis(axes)
        axes.set_xlabel("leaves (the ring marks the largest in training)")
        axes.set_ylabel("wrong sequences, %")
        axes.legend()
    return figure


def save(figure: Figure, folder: Path, name: str) -> list[Path]:
    """The figure as PNG and SVG, the same bytes for the same content."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the folder {folder}: {error.strerror}") from None
    paths = []
    with matplotlib().rc_context({"svg.hashsalt": "ham", "svg.fonttype": "none"}):
        for kind, more in (("png", {"dpi": 160}), ("svg", {"metadata": {"Date": None}})):
            write_whole(folder / f"{name}.{kind}", drawn(figure, kind, **more))
            paths.append(folder / f"{name}.{kind}")
    return paths


@contextmanager
def _style() -> Iterator[None]:
    settings: dict[Any, Any] = {
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "grid.alpha": 0.25,
        "font.size": 10,
        "legend.frameon": False,
    }
    with matplotlib().rc_context(settings):
        yield


def _looks() -> Iterator[dict[str, Any]]:
    number = 0
    while True:
        yield {"color": COLOURS[number % len(COLOURS)], "linestyle": STYLES[number % len(STYLES)]}
        number += 1


def _percent_axis(axes: Any) -> None:
    """Linear around zero, where runs should end, and logarithmic above."""
    axes.set_yscale("symlog", linthresh=0.1, linscale=0.5)
    axes.set_ylim(bottom=-0.02, top=115)  # below zero, so that a line at zero shows
    axes.set_yticks([0, 0.1, 1, 10, 100], ["0", "0.1", "1", "10", "100"])
    axes.minorticks_off()


__all__ = ["Measured", "blank", "entropy", "error_by_length", "learning", "save"]
