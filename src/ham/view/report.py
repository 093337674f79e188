"""`reproduction/index.html`: tables, plots, the figure and the live page together, to put on the web as it is."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ham.core.files import write_whole
from ham.view import plots
from ham.view.page import page

PAGE = "page.html"

STYLE = """
:root { color-scheme: light dark; font-family: system-ui, sans-serif; line-height: 1.5; }
body { max-width: 80rem; margin: 1rem auto; padding: 0 1rem; }
h1 { font-size: clamp(1.3rem, 4vw, 1.8rem); line-height: 1.2; margin: 0 0 0.5rem; }
table { border-collapse: collapse; margin: 0.5rem 0 1.5rem; }
th, td { border-bottom: 1px solid #8886; padding: 0.3rem 0.8rem; text-align: left; }
figure { margin: 1rem 0; }
img { max-width: 100%; background: #fff; border-radius: 0.4rem; }
iframe { width: 100%; height: 52rem; max-height: 96vh; border: 1px solid #8886; border-radius: 0.4rem; }
@media (max-width: 48rem) {
  thead { display: none; }
  tr, th, td { display: block; border: 0; padding: 0.1rem 0; }
  tr { border-bottom: 1px solid #8886; padding: 0.4rem 0; }
  td::before { content: attr(data-column) ": "; opacity: 0.75; }
}
"""
"""On a phone each row of a table is a block, with its column's name before each cell."""


def write_report(
    folder: Path,
    tables: Sequence[tuple[str, Sequence[str], Sequence[Sequence[str]]]],
    note: str,
    measured: Mapping[str, Mapping[str, Sequence[plots.Measured]]],
    trained_on: Mapping[str, Mapping[str, int]],
    logs: Mapping[str, Mapping[str, Sequence[dict[str, Any]]]],
    models: Sequence[dict[str, Any]],
    figures: Sequence[tuple[str, str]] = (),
) -> Path:
    """Write the report and the files it shows.

    Args:
        tables: title, columns and rows of each; a row begins with its task.
        note: how the numbers were measured.
        measured: error against the size of the memory, by task and model.
        trained_on: leaves of the largest memory in training, likewise.
        logs: the epochs of each model's training, likewise.
        models: what the live page holds, each from `ham.use.trace.portable`.
        figures: file names of more pictures in the folder, each with its caption.
    """
    pictures = []
    for task in measured:
        for name, figure, caption in (
            (
                f"error_by_size-{task}",
                plots.error_by_length(measured[task], trained_on[task]),
                "error against the size of the memory; a line ends where every sequence is wrong",
            ),
            (f"learning-{task}", plots.learning(logs[task]), "learning curves of the shipped models"),
        ):
            plots.save(figure, folder, name)
            pictures.append((f"{name}.svg", f"{task}: {caption}."))
    write_whole(folder / PAGE, page(models).encode())
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8>",
        "<meta name=viewport content='width=device-width, initial-scale=1'>",
        f"<title>HAM: the paper reproduced</title><style>{STYLE}</style>",
        "<h1>Hierarchical Attentive Memory: the paper reproduced</h1>",
        f"<p>Watch the shipped models think, here or <a href={PAGE}>on a page of its own</a>. "
        "The tables and plots are below.</p>",
        f"<iframe src={PAGE} title='The memory at work'></iframe>",
        f"<p>{html.escape(note)}</p>",
        *(_table(*table) for table in tables),
        *(_picture(file, caption) for file, caption in (*pictures, *figures)),
        "</html>",
    ]
    target = folder / "index.html"
    write_whole(target, "\n".join(parts).encode())
    return target


def _table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    columns = [html.escape(cell) for cell in header]
    cells = [
        f"<h2>{html.escape(title)}</h2><table><thead><tr>",
        *(f"<th scope=col>{column}</th>" for column in ("task", *columns)),
        "</tr></thead>",
    ]
    for first, *rest in rows:
        cells.append(f"<tr><th scope=row>{html.escape(first)}</th>")
        cells += [
            f"<td data-column='{column}'>{html.escape(cell)}</td>"
            for column, cell in zip(columns, rest, strict=True)
        ]
        cells.append("</tr>")
    return "".join([*cells, "</table>"])


def _picture(file: str, caption: str) -> str:
    text = html.escape(caption)
    return f"<figure><img src='{html.escape(file)}' alt='{text}'><figcaption>{text}</figcaption></figure>"
