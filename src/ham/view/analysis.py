"""The paper's analysis figure: Sort4 at its first two timesteps, and what one coordinate means.

The paper deciphered one of the six coordinates by eye: in an inner node it is positive iff the
smallest unattended item below lies to the right. We search for it: every coordinate is tried as
that signal, with a sign and a threshold fitted on half of the inputs and judged on the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

from ham.core.errors import InputError
from ham.use.trace import Trace
from ham.view.drawing import blank
from ham.view.plots import save

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAPER_INPUT = (0, 14, 13, 14, 9, 5, 7, 13)
"""x₁ = 0000, x₂ = 1110, x₃ = 1101 and so on, as in the paper's figure."""
BLUE, PINK = (0.0, 0.447, 0.698), (0.8, 0.2, 0.55)


@dataclass(frozen=True)
class Finding:
    """The coordinate that says best whether the minimum is on the right."""

    coordinate: int
    positive_means_right: bool
    accuracy: float
    """Share of right verdicts on held-out inputs, mean over inner nodes."""
    by_node: dict[int, float]
    """The same for each inner node, each with its own fitted threshold."""
    sign_alone: dict[int, float]
    """The paper's rule, without a fitted threshold: greater than zero or not."""
    guessing: dict[int, float]
    """What always giving the more frequent verdict would reach."""
    best: dict[int, tuple[int, bool, float]]
    """For each inner node its own best coordinate, whether large means right, and its accuracy: a
    network need not use the same coordinate on every level."""
    every_coordinate: list[float]
    """Mean held-out accuracy of each coordinate."""
    inputs: int


def decipher(traces: Sequence[Trace]) -> Finding:
    """Search the coordinates; the first half of the traces fits, the second judges."""
    if len(traces) < 4:
        raise InputError(f"deciphering needs at least 4 traces, got {len(traces)}")
    if len({trace.leaves for trace in traces}) > 1 or {trace.task for trace in traces} != {"sort4"}:
        raise InputError("deciphering needs traces of sort4, all of one size")
    leaves, size = traces[0].leaves, len(traces[0].tree[1])
    half = len(traces) // 2
    fitting, judging = ([_moments(trace) for trace in part] for part in (traces[:half], traces[half:]))
    nodes = range(1, leaves)
    accuracy = np.zeros((2, size, leaves))
    plain = np.zeros((2, size, leaves))
    guessing = {}
    for node in nodes:
        values, right = _cases(fitting, node)
        new_values, new_right = _cases(judging, node)
        guessing[node] = float(max(new_right.mean(), 1 - new_right.mean()))
        for coordinate in range(size):
            for sign in (0, 1):
                # With sign 1 a small value means right.
                flip = -1 if sign else 1
                threshold = _threshold(flip * values[:, coordinate], right)
                said = flip * new_values[:, coordinate] > threshold
                accuracy[sign, coordinate, node] = (said == new_right).mean()
                positive = new_values[:, coordinate] > 0
                plain[sign, coordinate, node] = ((positive ^ bool(sign)) == new_right).mean()
    means = accuracy[:, :, 1:].mean(-1)
    sign, coordinate = np.unravel_index(means.argmax(), means.shape)
    return Finding(
        coordinate=int(coordinate),
        positive_means_right=not sign,
        accuracy=float(means.max()),
        by_node={node: float(accuracy[sign, coordinate, node]) for node in nodes},
        sign_alone={node: float(plain[sign, coordinate, node]) for node in nodes},
        guessing=guessing,
        best={node: _best(accuracy[:, :, node]) for node in nodes},
        every_coordinate=means.max(0).tolist(),
        inputs=len(traces),
    )


def _best(accuracy: Float[ndarray, "2 size"]) -> tuple[int, bool, float]:
    sign, coordinate = np.unravel_index(accuracy.argmax(), accuracy.shape)
    return int(coordinate), not sign, float(accuracy.max())


def _moments(trace: Trace) -> list[tuple[np.ndarray, list[float]]]:
    """Before each timestep that answers an item: the memory, and each leaf's item, infinite once attended."""
    items = [float(int("".join(str(round(bit)) for bit in row), 2)) for row in trace.rows]
    items += [np.inf] * (trace.leaves - len(items))
    moments = []
    for tree, step in zip(trace.trees(), trace.steps, strict=False):
        moments.append((tree, list(items)))
        items[step.leaf] = np.inf
    return moments


def _cases(
    runs: list[list[tuple[np.ndarray, list[float]]]], node: int
) -> tuple[Float[ndarray, "cases size"], Bool[ndarray, "cases"]]:
    """A node's values, and whether its minimum was on the right; ties and empty subtrees say nothing."""
    values, right = [], []
    for moments in runs:
        for tree, items in moments:
            leaves = len(items)
            span = leaves >> (node.bit_length() - 1)
            first = node * span - leaves
            left_least = min(items[first : first + span // 2])
            right_least = min(items[first + span // 2 : first + span])
            if left_least != right_least:
                values.append(tree[node])
                right.append(right_least < left_least)
    return np.array(values, float), np.array(right, bool)


def _threshold(values: Float[ndarray, "cases"], right: Bool[ndarray, "cases"]) -> float:
    """The threshold above which "right" is said with the fewest mistakes."""
    order = np.argsort(values, kind="stable")
    values, right = values[order], right[order]
    # With the threshold before case i, cases i … are said to be right.
    mistakes = (
        np.concatenate([[0], np.cumsum(right)]) + (~right).sum() - np.concatenate([[0], np.cumsum(~right)])
    )
    allowed = np.concatenate([[True], values[1:] > values[:-1], [True]])
    best = int(np.where(allowed, mistakes, len(values) + 1).argmin())
    if best == 0:
        return float(values[0] - 1)
    if best == len(values):
        return float(values[-1] + 1)
    return float((values[best - 1] + values[best]) / 2)


def figure(trace: Trace, finding: Finding | None = None) -> Figure:
    """The tree with every node's cells at the first two timesteps, the deciphered coordinate in pink."""
    drawn = blank(13.0, 5.2)
    axes = drawn.subplots(1, 2)
    trees = list(trace.trees())
    top = np.quantile(np.abs(np.concatenate([trees[0][1:], trees[1][1:]])), 0.98) or 1.0
    for number, (each, title) in enumerate(
        zip(axes, ("The first timestep", "The second timestep"), strict=True)
    ):
        _draw_tree(each, trace, number, trees[number], top, finding)
        each.set_title(title, fontsize=12)
    if finding is not None:
        guess, own = (
            100 * np.mean(list(shares))
            for shares in (finding.guessing.values(), (share for _, _, share in finding.best.values()))
        )
        drawn.supxlabel(
            "Pink: the coordinate of an inner node that tells best whether the smallest unattended item below is on "
            f"the right;\nbeside it, how often it is right on {finding.inputs - finding.inputs // 2:,} held-out inputs "
            f"(mean {own:.1f}%; guessing {guess:.1f}%). One coordinate for all nodes, number {finding.coordinate + 1}, "
            f"reaches {100 * finding.accuracy:.1f}%.",
            fontsize=10,
        )
    return drawn


def _draw_tree(
    axes: Any, trace: Trace, number: int, tree: np.ndarray, top: float, finding: Finding | None
) -> None:
    from matplotlib.patches import Circle, Rectangle

    leaves = trace.leaves
    depth = leaves.bit_length() - 1
    path = set(trace.steps[number].path)
    size = tree.shape[1]
    columns = -(-size // 2)
    side = 0.3 if leaves <= 8 else 0.2

    def place(node: int) -> tuple[float, float]:
        level = node.bit_length() - 1
        span = leaves >> level
        return (node - (1 << level)) * span + (span - 1) / 2, 1.15 * (depth - level)

    for node in range(2, 2 * leaves):
        (x, y), (above_x, above_y) = place(node), place(node >> 1)
        axes.plot([x, above_x], [y, above_y], color="black", linewidth=2.6 if node in path else 0.7, zorder=1)
    for node in range(1, 2 * leaves):
        x, y = place(node)
        axes.add_patch(
            Circle(
                (x, y),
                0.44,
                facecolor="white",
                edgecolor="black",
                linewidth=2.6 if node in path else 0.7,
                zorder=2,
            )
        )
        for i, value in enumerate(tree[node]):
            row, column = divmod(i, columns)
            chosen = finding is not None and node in finding.best and i == finding.best[node][0]
            colour = PINK if chosen else BLUE
            strength = float(np.clip(value / top, 0, 1)) ** 0.5
            corner = (x + (column - columns / 2) * side * 0.8, y - row * side * 0.8)
            shade = tuple(1 - strength * (1 - channel) for channel in colour)
            axes.add_patch(
                Rectangle(
                    corner,
                    side * 0.8,
                    side * 0.8,
                    facecolor=shade,
                    edgecolor="black",
                    linewidth=0.5,
                    zorder=3,
                )
            )
        if finding is not None and node in finding.best and number == 0:
            share = f"{100 * finding.best[node][2]:.1f}%"
            paper = {"facecolor": "white", "edgecolor": "none", "pad": 1}
            axes.text(x + 0.46, y + 0.26, share, fontsize=8, color=PINK, zorder=4, bbox=paper)
    for i, row in enumerate(trace.rows):
        x, y = place(leaves + i)
        for j, bit in enumerate(row):
            shade = tuple(1 - round(bit) * (1 - channel) for channel in BLUE)
            corner = (x - 0.12, y - 0.8 - 0.24 * j)
            axes.add_patch(Rectangle(corner, 0.24, 0.24, facecolor=shade, edgecolor="black", linewidth=0.5))
        axes.text(x, y - 2.05, "".join(str(round(bit)) for bit in row), ha="center", fontsize=8)
    axes.set_xlim(-0.7, leaves - 0.3)
    axes.set_ylim(-2.3, 1.15 * depth + 0.6)
    axes.set_aspect("equal")
    axes.axis("off")


def write_figure(trace: Trace, finding: Finding | None, folder: Path, name: str = "analysis") -> list[Path]:
    """The figure as PNG and SVG."""
    return save(figure(trace, finding), folder, name)


__all__ = ["PAPER_INPUT", "Finding", "decipher", "figure", "write_figure"]
