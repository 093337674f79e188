"""A trace as text, a line a timestep, and as a picture that a notebook shows: no script, no other file."""

from __future__ import annotations

import html
from typing import Any, TypeAlias

# Of ham.use.trace, which imports this module.
Trace: TypeAlias = Any
Step: TypeAlias = Any
Output: TypeAlias = Any

MOST_LEAVES = 32
"""Of a tree that is drawn whole; of a larger one only the path, in words."""
MOST_STEPS = 24
"""Timesteps that are drawn; the rest is counted."""
RIGHT, WRONG, PATH, REST = "#009e73", "#d55e00", "#0072b2", "#8888"


def in_lines(trace: Trace) -> str:
    """A trace in a line a timestep: each turn and how sure it was; leaves are counted from 0, as everywhere."""
    lines = [f"{trace.task}, {trace.leaves} leaves: {trace.text}"]
    for number, step in enumerate(trace.steps, 1):
        turns = " ".join(f"{'R' if p > 0.5 else 'L'} {max(p, 1 - p):.0%}" for p in step.p_right)
        lines.append(f"{number:4}  {turns}  leaf {step.leaf}{_said(step.output)}")
    verdict = "right" if trace.right else f"should be {trace.expected}"
    return "\n".join([*lines, f"answer {trace.answer or '(nothing)'}, {verdict}"])


def drawn(trace: Trace) -> str:
    """A trace as HTML: a small tree for every timestep, with the path that was taken and what was answered."""
    if trace.leaves > MOST_LEAVES:
        return f"<pre>{html.escape(in_lines(trace))}</pre>"
    verdict = "right" if trace.right else f"wrong, should be {trace.expected}"
    title = f"{trace.task}: {trace.text} → {trace.answer or '(nothing)'} ({verdict})"
    boxes = [_box(number, step, trace.leaves) for number, step in enumerate(trace.steps[:MOST_STEPS], 1)]
    if len(trace.steps) > MOST_STEPS:
        boxes.append(f"<span>… {len(trace.steps) - MOST_STEPS:,} more</span>")
    return (
        f'<div><div style="font-weight:600">{html.escape(title)}</div>'
        f'<div style="display:flex;flex-wrap:wrap;gap:.8em;align-items:end">{"".join(boxes)}</div></div>'
    )


def _box(number: int, step: Step, leaves: int) -> str:
    """One timestep: the tree, the path in colour, and below it the leaf and what was said."""
    output = step.output
    colour = REST if output is None or output.right is None else RIGHT if output.right else WRONG
    said = html.escape(f"{number}: leaf {step.leaf}{_said(output, verdict=False)}")
    return (
        f'<figure style="margin:0;text-align:center;font-size:.8em">{_tree(step, leaves)}'
        f'<figcaption style="border-top:2px solid {colour}">{said}</figcaption></figure>'
    )


def _tree(step: Step, leaves: int) -> str:
    depth = leaves.bit_length() - 1
    gap, rise = (14, 22) if leaves <= 8 else (7, 18)
    width, height = leaves * gap, depth * rise + 12

    def place(node: int) -> tuple[float, int]:
        level = node.bit_length() - 1
        span = leaves >> level
        return ((node - (1 << level)) * span + span / 2) * gap, 6 + level * rise

    path, lines, dots = set(step.path), [], []
    # What is on the path is drawn last, over the rest.
    for node in sorted(range(1, 2 * leaves), key=lambda node: node in path):
        (x, y), colour = place(node), PATH if node in path else REST
        if node > 1:
            above_x, above_y = place(node >> 1)
            stroke = f'stroke="{colour}" stroke-width="{2.5 if node in path else 1}"'
            lines.append(f'<line x1="{x:g}" y1="{y:g}" x2="{above_x:g}" y2="{above_y:g}" {stroke}/>')
        dots.append(f'<circle cx="{x:g}" cy="{y:g}" r="{4 if node in path else 2.5}" fill="{colour}"/>')
    label = f"path to leaf {step.leaf} of {leaves}"
    return (
        f'<svg width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img" aria-label="{label}">'
        f"<title>{label}</title>{''.join(lines)}{''.join(dots)}</svg>"
    )


def _said(output: Output | None, verdict: bool = True) -> str:
    if output is None or output.expected is None:
        return ""
    judged = "right" if output.right else f"wrong, should be {_item(output.expected)}"
    return f"  → {_item(output.item)}{f'  {judged}' if verdict else ''}"


def _item(item: Any) -> str:
    return ":".join(map(str, item)) if isinstance(item, list) else str(item)
