"""Arguments from annotations, by tyro; what tyro says in a box becomes one line."""

from __future__ import annotations

import functools
import io
import re
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr
from typing import Annotated, Any, Literal

import tyro

from ham.core.errors import InputError

Backend = Annotated[
    Literal["auto", "native", "reference"] | None,
    tyro.conf.arg(metavar="{auto,native,reference}", help_behavior_hint=""),
]
"""As `ham.ops.Backend`, which cannot be had without torch."""


def optional(metavar: str) -> Any:
    """Marks an argument whose default its help tells in words."""
    return tyro.conf.arg(metavar=metavar, help_behavior_hint="")


def bound(function: Callable[..., Any], argv: Sequence[str], command: str) -> Callable[[], Any]:
    """The function with its arguments taken from the command line, ready to be called."""

    @functools.wraps(function)
    def bind(*args: Any, **kwargs: Any) -> Callable[[], Any]:
        return functools.partial(function, *args, **kwargs)

    return parse(bind, argv, command, config=(tyro.conf.FlagCreatePairsOff,))


def parse(
    what: Callable[..., Any], argv: Sequence[str], command: str, default: Any = None, config: tuple = ()
) -> Any:
    """Make a dataclass or call a function from the command line; `InputError` where that cannot be."""
    said = io.StringIO()
    given = {} if default is None else {"default": default}
    try:
        with redirect_stderr(said):
            return tyro.cli(what, args=list(argv), prog=command, config=config, **given)
    except SystemExit as end:
        if not end.code:
            raise
        raise InputError(f"{_essence(said.getvalue())}; see {command} --help") from None


def _essence(boxed: str) -> str:
    """What tyro's box says: its first part, and the flag that was perhaps meant.

    >>> _essence("╭─ Title ─╮\\n│ Unrecognized options: --sed │\\n│ ─── │\\n│ For full … │\\n╰──╯")
    'unrecognized options: --sed'
    """
    lines = [line.strip("│ ") for line in boxed.splitlines()[1:-1]]
    parts = [part.strip() for part in re.split(r"\n?─+\n?", "\n".join(lines))]
    essence = " ".join(parts[0].split()).removeprefix("Error parsing ").rstrip(".")
    essence = re.sub(r"invalid literal for int\(\) with base 10:", "expected a whole number, got", essence)
    essence = re.sub(r"could not convert string to float:", "expected a number, got", essence)
    if len(parts) > 1 and (meant := re.match(r"Perhaps you meant:\s*(--\S+)", parts[1])):
        essence += f" (did you mean {meant[1].rstrip(',')}?)"
    return essence[:1].lower() + essence[1:]
