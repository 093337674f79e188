"""Puts the page together: one HTML file that needs no server, no network and no other file."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ham.core.errors import InputError

if TYPE_CHECKING:
    from ham.tasks import Task
    from ham.use.trace import Trace

HERE = Path(__file__).parent
SCRIPTS = ("network.js", "tasks.js", "tree.js", "race.js", "app.js")
KNOWN = ("sort", "reverse", "search", "merge", "add", "sort4", "stack", "queue", "priority_queue")
"""Tasks that the page can read, solve and draw; tasks.js defines them."""
CONTROLLERS = ("lstm", "gru", "feed-forward")
JOINS = ("rectified", "normalised", "highway")
"""Controllers, and forms of JOIN, that network.js can run."""
MOST_ROWS = 1024
"""The longest input that the page takes; as in tasks.js."""


def page(
    models: Sequence[dict[str, Any]],
    task: str | None = None,
    text: str | None = None,
    *,
    own: Sequence[dict[str, Any]] = (),
) -> str:
    """The page with these models inside (each from `ham.use.trace.portable`), opened on a task or its first.

    Tasks of one's own come as traces (each from `prepared`): only Python can read their questions.
    The policy allows exactly this style and this script, by their hashes, and nothing remote.
    """
    for model in models:
        if model["controller"] not in CONTROLLERS:
            raise InputError(f"the page does not know the controller {model['controller']}")
        if (join := model["bounds"]["join"]) not in JOINS:
            raise InputError(f"the page does not know a {join} JOIN")
    style = (HERE / "page.css").read_text("utf-8")
    parts = [(HERE / name).read_text("utf-8") for name in SCRIPTS]
    script = '"use strict";\n' + "\n".join(parts)
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    data = json.dumps({"models": list(models), "own": list(own), "start": {"task": task, "input": text}})
    values = {"policy": policy, "style": style, "script": script, "data": data.replace("<", "\\u003c")}
    html = (HERE / "page.html").read_text("utf-8")
    # One pass over the template, so that no inserted text is taken for a placeholder.
    before, *rest = html.split("{{")
    pieces = [before]
    for piece in rest:
        name, _, after = piece.partition("}}")
        pieces += [values[name], after]
    return "".join(pieces)


def prepared(task: Task, traces: Sequence[Trace], trained_on: int) -> dict[str, Any]:
    """A task that the page does not know, as it shows one: what it is called, and some questions' traces."""
    return {
        "name": task.name,
        "summary": task.summary,
        "online": task.online,
        "trained_on": trained_on,
        "traces": [_rounded(dataclasses.asdict(trace)) for trace in traces],
    }


def _rounded(value: Any) -> Any:
    """Digits that nobody can see left out: they are most of a trace's size."""
    if isinstance(value, float):
        return round(value, 4)
    if isinstance(value, dict):
        return {name: _rounded(item) for name, item in value.items()}
    return [_rounded(item) for item in value] if isinstance(value, list) else value


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
