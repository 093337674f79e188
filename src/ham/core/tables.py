"""Tables as text for other programs: comma-separated values, and LaTeX."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ham.core.text import visible

_IN_LATEX = {
    **{char: f"\\{char}" for char in "&%$#_{}"},
    **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"},
    **{"–": "--", "—": "---", "…": r"\dots{}", "µ": r"\textmu{}", "√": r"$\surd$"},
    **{"Θ": r"$\Theta$", "·": r"$\cdot$", "×": r"$\times$", "→": r"$\to$", "≤": r"$\le$"},
}


def latex_text(text: object) -> str:
    """A text as LaTeX that shows it.

    >>> latex_text("priority_queue: 3% – 5%")
    'priority\\\\_queue: 3\\\\% -- 5\\\\%'
    """
    return "".join(_IN_LATEX.get(char, char) for char in visible(text))


def latex(columns: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[str] = ()) -> str:
    """A table as LaTeX's `tabular`, which needs no package."""
    lines = [f"{' & '.join(map(latex_text, cells))} \\\\" for cells in (columns, *rows)]
    sides = "".join("r" if column in right else "l" for column in columns)
    frame = rf"\begin{{tabular}}{{{sides}}}", r"\hline", lines[0], r"\hline", *lines[1:], r"\hline"
    return "\n".join([*frame, r"\end{tabular}", ""])


def comma_separated(records: Sequence[Mapping[str, Any]]) -> str:
    """Records of the same keys, their names in the first line; texts without what a terminal would obey.

    A pair of bounds becomes two columns, an object one for each of its keys.

    >>> print(comma_separated([{"n": 4, "interval": [0.5, 2.5], "space": {"size": 20}}]), end="")
    n,interval_low,interval_high,space.size
    4,0.5,2.5,20
    """
    flat = [
        {visible(name): visible(value) if isinstance(value, str) else value for name, value in _flat(record)}
        for record in records
    ]
    names = list(dict.fromkeys(name for record in flat for name in record))
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)
    return text.getvalue()


def _flat(record: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in record.items():
        if isinstance(value, Mapping):
            yield from ((f"{name}.{inner}", its) for inner, its in _flat(value))
        elif isinstance(value, (list, tuple)) and len(value) == 2:
            yield f"{name}_low", value[0]
            yield f"{name}_high", value[1]
        else:
            yield name, value
