"""Puts the page together: one HTML file that needs no server, no network and no other file."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SCRIPTS = ("network.js", "tasks.js", "tree.js", "app.js")
KNOWN = ("sort", "reverse", "search", "merge", "add", "sort4", "stack", "queue", "priority_queue")
"""Tasks that the page can read, solve and draw; tasks.js defines them."""
MOST_ROWS = 1024
"""The longest input that the page takes; as in tasks.js."""


def page(models: Sequence[dict[str, Any]], task: str | None = None, text: str | None = None) -> str:
    """The page with these models inside (each from `ham.use.trace.portable`), opened on a task or its first.

    The policy allows exactly this style and this script, by their hashes, and nothing remote.
    """
    style = (HERE / "page.css").read_text("utf-8")
    parts = [(HERE / name).read_text("utf-8") for name in SCRIPTS]
    script = '"use strict";\n' + "\n".join(parts)
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    data = json.dumps({"models": list(models), "start": {"task": task, "input": text}})
    values = {"policy": policy, "style": style, "script": script, "data": data.replace("<", "\\u003c")}
    html = (HERE / "page.html").read_text("utf-8")
    # One pass over the template, so that no inserted text is taken for a placeholder.
    before, *rest = html.split("{{")
    pieces = [before]
    for piece in rest:
        name, _, after = piece.partition("}}")
        pieces += [values[name], after]
    return "".join(pieces)


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
