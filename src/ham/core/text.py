"""Text from files and folders, made fit for where it is shown: a terminal, a page, a shell."""

from __future__ import annotations

import html
import re
import shlex
from collections.abc import Iterable

LONGEST_MESSAGE = 500


def visible(text: object) -> str:
    """A text whose every character can be seen: no escape codes, no line breaks, no change of direction.

    >>> visible("a\\x1b[31mb\\nc")
    'a�[31mb�c'
    """
    return "".join(char if char.isprintable() else "\ufffd" for char in str(text))


def one_line(message: str) -> str:
    """A message without line breaks or control characters, whatever file or person it quotes."""
    line = " ".join("".join(char if char.isprintable() else " " for char in message).split())
    return line if len(line) <= LONGEST_MESSAGE else f"{line[: LONGEST_MESSAGE - 1]}…"


def meant(word: str, known: Iterable[str]) -> str:
    """What to say of a word that nobody knows: the one it was perhaps meant for, or nothing.

    >>> meant("srt", ["search", "sort"]), meant("sort2", ["stack"])
    (' (did you mean sort?)', '')
    """
    import difflib  # not for every start of the program

    close = difflib.get_close_matches(word.lower(), list(known), 1, cutoff=0.65)
    return f" (did you mean {close[0]}?)" if close else ""


def shell_word(word: object) -> str:
    """A word of a command that is suggested: pasted into a shell it means itself and nothing else.

    >>> shell_word("runs/sort-1"), shell_word("$(date)"), shell_word("it's\\n")
    ('runs/sort-1', "'$(date)'", "$'it\\\\'s\\\\u000a'")
    """
    text = str(word)
    return shlex.quote(text) if text.isprintable() else f"$'{''.join(map(_escaped, text))}'"


def _escaped(char: str) -> str:
    if char in "'\\":
        return f"\\{char}"
    if char.isprintable():
        return char
    if "\udc80" <= char <= "\udcff":  # a byte of a name that is not UTF-8
        return f"\\x{ord(char) - 0xDC00:02x}"
    return f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}"


def markdown_text(text: object) -> str:
    """A text as Markdown that shows it, in one line.

    >>> markdown_text("<script> *x*")
    '&lt;script&gt; \\\\*x\\\\*'
    """
    return re.sub(r"([\\`*_~\[\]])", r"\\\1", html.escape(visible(text), quote=False))


def markdown_code(text: object) -> str:
    """A text as code in Markdown, between more backticks than it holds.

    >>> markdown_code("ls"), markdown_code("a`b")
    ('`ls`', '`` a`b ``')
    """
    shown = visible(text)
    fence = "`" * (1 + max(map(len, re.findall("`+", shown)), default=0))
    return f"{fence}{shown}{fence}" if len(fence) == 1 else f"{fence} {shown} {fence}"
