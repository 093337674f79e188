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
body { max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; margin: 0.5rem 0 1.5rem; }
th, td { border-bottom: 1px solid #8886; padding: 0.3rem 0.8rem; text-align: left; white-space: nowrap; }
img { max-width: 100%; background: #fff; border-radius: 0.4rem; }
iframe { width: 100%; height: 56rem; border: 1px solid #8886; border-radius: 0.4rem; }
"""


def write_report(
    folder: Path,
    tables: Sequence[tuple[str, Sequence[str], Sequence[Sequence[str]]]],
    note: str,
    measured: Mapping[str, Mapping[str, Sequence[plots.Measured]]],
    logs: Mapping[str, Mapping[str, Sequence[dict[str, Any]]]],
    models: Sequence[dict[str, Any]],
    figures: Sequence[tuple[str, str]] = (),
) -> Path:
    """Write the report and the files it shows.

    Args:
        tables: title, columns and rows of each; a row begins with its task.
        note: how the numbers were measured.
        measured: error against the size of the memory, by task and model.
        logs: the epochs of each model's training, likewise.
        models: what the live page holds, each from `ham.use.trace.portable`.
        figures: file names of more pictures in the folder, each with its caption.
    """
    pictures = []
    for task in measured:
        for name, figure, caption in (
            (
                f"error_by_size-{task}",
                plots.error_by_length(measured[task]),
                "error against the size of the memory",
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
        f"<p>{html.escape(note)}</p>",
        *(_table(*table) for table in tables),
        *(_picture(file, caption) for file, caption in (*pictures, *figures)),
        f"<h2>Watch it think</h2><p><a href={PAGE}>On a page of its own</a></p>",
        f"<iframe src={PAGE} title='The memory at work'></iframe></html>",
    ]
    target = folder / "index.html"
    write_whole(target, "\n".join(parts).encode())
    return target


def _table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    cells = [
        f"<h2>{html.escape(title)}</h2><div class=wide><table>",
        "<tr>" + "".join(f"<th scope=col>{html.escape(cell)}</th>" for cell in ("task", *header)) + "</tr>",
    ]
    for first, *rest in rows:
        cells.append(
            f"<tr><th scope=row>{html.escape(first)}</th>"
            + "".join(f"<td>{html.escape(cell)}</td>" for cell in rest)
            + "</tr>"
        )
    return "".join([*cells, "</table></div>"])


def _picture(file: str, caption: str) -> str:
    text = html.escape(caption)
    return f"<figure><img src='{html.escape(file)}' alt='{text}'><figcaption>{text}</figcaption></figure>"
