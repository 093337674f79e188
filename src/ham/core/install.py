"""How to install what is missing, from wherever this package came."""

from __future__ import annotations

from pathlib import Path

from ham.core.text import shell_word

CLONE = Path(__file__).parents[3]
"""The repository, if this package runs from one."""


def install(extra: str) -> str:
    """The command that installs an extra; it needs no index that knows this package."""
    if not (CLONE / "pyproject.toml").is_file():
        return f"pip install {shell_word(f'ham-memory[{extra}]')}"  # pip finds it where it is installed
    here = "." if Path.cwd() == CLONE else CLONE
    return f"pip install -e {shell_word(f'{here}[{extra}]')}"
