"""Arguments from annotations, by tyro; what tyro says in a box becomes one line.

`--help` leaves out what is marked as `rare`, `--help-all` tells everything.
"""

from __future__ import annotations

import functools
import inspect
import io
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Annotated, Any, Literal, get_type_hints

import tyro

from ham.core.errors import InputError
from ham.core.text import meant

HELP_ALL = "--help-all"
HELP = {"--help", "-h", HELP_ALL}

LEAST, READ = 20, 80
"""Columns that tyro draws in at least: its boxes never end where there is no room for a letter; what is read from them
again must not be broken within words."""

rare = "rare"
"""Marks an argument that only `--help-all` tells of."""

Switch = tyro.conf.FlagCreatePairsOff[Annotated[bool, tyro.conf.arg(help_behavior_hint="")]]
"""A flag that is given or not."""

Backend = Annotated[
    Literal["auto", "native", "reference"] | None,
    tyro.conf.arg(
        metavar="{auto,native,reference}",
        help="engine to run on; by default $HAM_BACKEND, or auto.",
        help_behavior_hint="",
    ),
]
"""As `ham.ops.Backend`, which cannot be had without torch."""

Threads = Annotated[int, tyro.conf.arg(help="threads to run on."), rare]


def optional(metavar: str) -> Any:
    """Marks an argument whose default its help tells in words."""
    return tyro.conf.arg(metavar=metavar, help_behavior_hint="")


def require_sizes(option: str, sizes: Sequence[int] | None) -> None:
    """Refuse an option that was given without any number."""
    if sizes is not None and not sizes:
        raise InputError(f"{option} needs at least one number of leaves, such as {option} 32")


def together() -> Any:
    """Marks a dataclass whose fields are arguments like all others."""
    return tyro.conf.arg(name="")


def bound(function: Callable[..., Any], argv: Sequence[str], command: str) -> Callable[[], Any]:
    """The function with its arguments taken from the command line, ready to be called."""

    @functools.wraps(function)
    def bind(*args: Any, **kwargs: Any) -> Callable[[], Any]:
        return functools.partial(function, *args, **kwargs)

    # A help text goes on in the next line: where it breaks is the terminal's to say.
    bind.__doc__ = re.sub(r"\n {9,}", " ", function.__doc__ or "")
    short = bool({"--help", "-h"} & set(argv))
    hints = get_type_hints(function, include_extras=True)
    bind.__annotations__ = {name: _shown(hint, short) for name, hint in hints.items()}
    bind.__dict__["__signature__"] = inspect.signature(function)
    del bind.__wrapped__  # tyro would look there
    more = short and any(map(_is_rare, hints.values()))
    return parse(bind, argv, command, config=(tyro.conf.FlagCreatePairsOff,), more=more)


def _shown(hint: Any, short: bool) -> Any:
    """A parameter's type, with how its help is to show it."""
    if hint is bool:
        return Switch
    return Annotated[hint, tyro.conf.Suppress] if short and _is_rare(hint) else hint


def _is_rare(hint: Any) -> bool:
    return any(mark is rare for mark in getattr(hint, "__metadata__", ()))


def parse(
    what: Callable[..., Any],
    argv: Sequence[str],
    command: str,
    default: Any = None,
    config: tuple = (),
    more: bool = False,
) -> Any:
    """Make a dataclass or call a function from the command line; `InputError` where that cannot be.

    `more` is for help that leaves something out, and says so.
    """
    given: dict[str, Any] = {"config": config}
    if default is not None:
        given["default"] = default
    asked = ["--help"] if HELP & set(argv) else list(argv)
    said, helped = io.StringIO(), _Captured(drawn_for=sys.stdout if HELP & set(argv) else None)
    try:
        with _columns(LEAST if HELP & set(argv) else READ), redirect_stderr(said), redirect_stdout(helped):
            made, unknown = tyro.cli(what, args=asked, prog=command, return_unknown_args=True, **given)
    except SystemExit as end:
        if end.code:
            raise InputError(f"{_essence(said.getvalue())}; see {command} --help") from None
        print(_folded(helped.getvalue()), end="")
        if more:
            print(_folded(f"\n{command} {HELP_ALL} tells of all options."), end="")
        raise
    if unknown:
        raise InputError(f"{_unknown(unknown, _flags(what, given))}; see {command} --help")
    return made


@contextmanager
def _columns(least: int) -> Iterator[None]:
    """For tyro the terminal's columns, but at least so many."""
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = str(max(least, shutil.get_terminal_size().columns))
    try:
        yield
    finally:
        if before is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = before


class _Captured(io.StringIO):
    """Collects what is printed; tyro draws it for the stream that it goes to, or as `_essence` reads it."""

    def __init__(self, drawn_for: Any):
        super().__init__()
        self.drawn_for = drawn_for

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return str(self.drawn_for.encoding).lower() if self.drawn_for else "utf-8"

    def isatty(self) -> bool:
        return bool(self.drawn_for) and self.drawn_for.isatty()


def _folded(text: str) -> str:
    """Help whose every line fits the terminal: tyro sees to its boxes, not to what is outside of them."""
    width = max(LEAST, shutil.get_terminal_size().columns)
    lines = [
        textwrap.fill(
            line, width, subsequent_indent=" " * 4 * line.startswith("usage:"), break_on_hyphens=False
        )
        if len(line) > width and " " * 4 not in line
        else line
        for line in text.splitlines()
    ]
    return re.sub("\n{3,}", "\n\n", "\n".join(lines)) + "\n"


def _flags(what: Callable[..., Any], given: dict[str, Any]) -> list[str]:
    """All flags that there are, in the order of their help."""
    printed = io.StringIO()
    try:
        with _columns(READ), redirect_stdout(printed):
            tyro.cli(what, args=["--help"], **given)
    except SystemExit:
        pass
    return list(dict.fromkeys(re.findall(r"(?<![\w-])--[a-z][\w.+-]*", printed.getvalue())))


def _unknown(words: Sequence[str], flags: Sequence[str]) -> str:
    """What to say of words that are no arguments.

    >>> _unknown(["--lr", "3"], ["--main.learning-rate", "--end.learning-rate"])
    'there is no option --lr (did you mean --main.learning-rate or --end.learning-rate?)'
    """
    word = next((word for word in words if word.startswith("--")), words[0])
    if not word.startswith("-"):
        return f"{word!r} is one argument too many; what belongs together goes into quotes"
    asked = word.partition("=")[0].replace("_", "-")
    last = asked.rpartition(".")[2].removeprefix("--")
    same = [
        flag for flag in flags if last in (_last(flag), "".join(part[0] for part in _last(flag).split("-")))
    ]
    perhaps = f" (did you mean {' or '.join(same[:2])}?)" if same else meant(asked, flags)
    return f"there is no option {asked}{perhaps}"


def _last(flag: str) -> str:
    return flag.rpartition(".")[2].removeprefix("--")


def _essence(boxed: str) -> str:
    """What tyro's box says: its first part.

    >>> _essence("╭─ Title ─╮\\n│ Missing value for argument '--sed'. │\\n│ ─── │\\n│ For full … │\\n╰──╯")
    "missing value for argument '--sed'"
    """
    lines = [line.strip("│ ") for line in boxed.splitlines()[1:-1]]
    parts = [part.strip() for part in re.split(r"\n?─+\n?", "\n".join(lines))]
    essence = " ".join(parts[0].split()).removeprefix("Error parsing ").rstrip(".")
    essence = re.sub(r"invalid literal for int\(\) with base 10:", "expected a whole number, got", essence)
    essence = re.sub(r"could not convert string to float:", "expected a number, got", essence)
    essence = re.sub(r"[Nn]o type matching \{None\}\|.*- <class '\w+'>: ", "", essence)  # it may be left out
    if choice := re.match(r"[Ii]nvalid choice '(.*)' for argument '(.*)'. Expected one of \((.*)\)", essence):
        choices = sorted(set(re.findall("'([^']*)'", choice[3])) - {"None"})
        return (
            f"{choice[2]} must be one of {', '.join(choices)}, got {choice[1]!r}{meant(choice[1], choices)}"
        )
    return essence[:1].lower() + essence[1:]
