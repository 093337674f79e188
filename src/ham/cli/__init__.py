"""The command line: find the command, hand it its arguments, turn its end into an exit code.

Notable choices: only this page is read before a command is known, so `ham --help` imports
nothing; a command is an ordinary annotated function in its own module, and tyro makes its flags
from the annotations; `InputError` is caught here and nowhere else.

Exit codes: 0 done; 1 the command's own answer is no (`ham solve`: the oracle disagrees,
`ham check-task`: problems found); 2 bad input; 130 stopped by Ctrl-C or SIGTERM.
"""

from __future__ import annotations

import atexit
import codecs
import gc
import io
import os
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ham.cli.interrupt import prompt
from ham.core.errors import InputError
from ham.core.places import at
from ham.core.text import meant, one_line

IN_ASCII = {"→": "->", "…": "...", "–": "-", "—": "-", "─": "-", "×": "x", "·": "*", "√": "v", "’": "'"}
IN_ASCII |= {"Θ": "Theta", "α": "alpha", "η": "eta", "µ": "u"}
"""How a terminal is told what it has no character for."""
OUT_OF_MEMORY = re.compile("allocate memory|out of memory|bad_alloc|can't start new thread")
"""What PyTorch and Python say, in errors that have no type of their own."""


# A process that ends need not look through all of PyTorch for cycles first, which takes longer than most answers.
atexit.register(gc.freeze)


@dataclass(frozen=True)
class Command:
    """Where a command lives and what it does, in one line."""

    function: str
    """`module:function`. The function's annotated parameters are the flags (positional-only ones
    are arguments), its docstring is the help; what it returns is the exit code, None for 0."""
    summary: str
    raw: bool = False
    """The function takes the list of arguments and parses them itself."""

    def load(self) -> Callable[..., Any]:
        return at(self.function)


COMMANDS = {
    "train": Command("ham.cli.train:train", "train a model on a task", raw=True),
    "evaluate": Command("ham.cli.evaluate:evaluate", "measure the error of a trained model"),
    "stress": Command("ham.cli.stress:stress", "measure a trained model on the hard cases of its task"),
    "probe": Command("ham.cli.probe:probe", "say where a trained model goes wrong, and how sure it was"),
    "solve": Command("ham.cli.solve:solve", "let a trained model answer your own questions"),
    "view": Command("ham.cli.view:view", "watch the memory at work, in a page in your browser"),
    "trace": Command("ham.cli.trace:trace", "print what a model does, timestep by timestep"),
    "plot": Command("ham.cli.plot:plot", "plot runs: learning curves, entropy, error by length"),
    "tune": Command("ham.cli.tune:tune", "search for good hyper-parameters, on one machine or many"),
    "sweep": Command("ham.cli.sweep:sweep", "train one recipe from many seeds"),
    "reproduce": Command("ham.cli.reproduce:reproduce", "print the paper's tables from the shipped models"),
    "tasks": Command("ham.cli.tasks:tasks", "list the tasks"),
    "check-task": Command("ham.cli.check_task:check_task", "say what is wrong with a task of your own"),
    "bench": Command("ham.cli.bench:bench", "measure speed beside PyTorch, torch.compile, JAX and attention"),
    "doctor": Command("ham.cli.doctor:doctor", "show what this installation runs on, and how fast"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; its exit code."""
    _prepare_streams()
    try:
        with prompt():
            code = _run(list(sys.argv[1:] if argv is None else argv))
        sys.stdout.flush()
    except InputError as error:
        _say(str(error))
        return 2
    except KeyboardInterrupt:
        _say("interrupted")
        return 130
    except BrokenPipeError:
        _drop_output()  # whoever read it has had enough
        return 141
    except OSError as error:
        # A full disk, a folder that may not be written: the machine's, not a bug's.
        _drop_output()
        what = error.filename or "cannot write the output"
        _say(f"{what}: {error.strerror}")
        return 2
    except (MemoryError, RuntimeError) as error:
        if not (isinstance(error, MemoryError) or OUT_OF_MEMORY.search(str(error))):
            raise
        _say(f"not enough memory: {str(error) or 'Python could allocate no more'}")
        return 2
    return code


def _say(what: str) -> None:
    with suppress(BrokenPipeError):  # the exit code tells it too
        print(f"ham: {one_line(what)}", file=sys.stderr)


class _Remarks(io.RawIOBase):
    """Standard error, whose lines are lost where there is no room for them: no command fails by that.

    Who does not read them any more is told of once, as for standard output.
    """

    def __init__(self, raw: Any):
        self._raw, self._is_left = raw, False

    def write(self, data: Any) -> int:
        try:
            return self._raw.write(data)
        except OSError as error:
            if isinstance(error, BrokenPipeError) and not self._is_left:
                self._is_left = True
                raise
            return len(data)

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._raw.fileno()

    def isatty(self) -> bool:
        return self._raw.isatty()


def _prepare_streams() -> None:
    """Streams that were closed lead nowhere, and what a terminal cannot show is put in ASCII for it."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115
    codecs.register_error("in-ascii", _in_ascii)
    if sys.stderr is sys.__stderr__ and isinstance(sys.stderr, io.TextIOWrapper):
        below: Any = sys.stderr.buffer
        remarks: Any = _Remarks(getattr(below, "raw", below))
        sys.stderr = io.TextIOWrapper(io.BufferedWriter(remarks), sys.stderr.encoding, line_buffering=True)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="in-ascii")


def _in_ascii(error: UnicodeError) -> tuple[str, int]:
    """What stands for characters that an encoding does not have."""
    assert isinstance(error, UnicodeEncodeError)
    return "".join(IN_ASCII.get(char, "?") for char in error.object[error.start : error.end]), error.end


def _drop_output() -> None:
    """Python would complain again about what it could not write when it closes standard output."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(argv: list[str]) -> int:
    name, *rest = argv or ["--help"]
    if name in ("--help", "-h", "help"):
        print(overview())
        return 0
    if name == "--version":
        from ham import __version__

        print(f"ham {__version__}")
        return 0
    if name not in COMMANDS:
        raise InputError(f"no command is named {name!r}{meant(name, COMMANDS)}; see ham --help")
    command = COMMANDS[name]
    function = command.load()
    if not command.raw:
        from ham.cli.arguments import bound

        function = bound(function, rest, f"ham {name}")
        rest = []
    return (function(rest) if command.raw else function()) or 0


def overview() -> str:
    """What `ham --help` prints."""
    width = max(map(len, COMMANDS)) + 2
    return "\n".join(
        [
            "usage: ham COMMAND ...",
            "",
            "Hierarchical Attentive Memory: a neural memory read and written in Θ(log n).",
            "",
            *(f"  {name:{width}}{command.summary}" for name, command in COMMANDS.items()),
            "",
            "ham COMMAND --help tells its arguments; ham --version the version.",
        ]
    )


__all__ = ["COMMANDS", "Command", "main", "overview"]
