"""Programs that end with the one that started them, however that ends.

A guard, a small Python of its own, stands between the two and watches a pipe. When the pipe closes,
because its owner is done with the program or is gone, even by SIGKILL, the guard ends the program
and everything that it has started. A folder that is only for the life of a process has such a guard too.
"""

from __future__ import annotations

import math
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

SECONDS_TO_END = 10.0
"""For a program that was asked to end; then it is killed."""
REMOVE = "remove"


@contextmanager
def guarded(
    command: Sequence[str], ending: signal.Signals, patience: float = math.inf, **options: Any
) -> Iterator[subprocess.Popen]:
    """Start a program that lives no longer than this block; `ending` is the signal it then gets.

    Its end is waited for, for `patience` seconds at most; then its guard sees to it alone. `terminate()` on what
    this gives ends it too. Ctrl-C in a terminal does not reach it.
    """
    reading, writing = os.pipe()
    try:
        words = [sys.executable, "-I", "-S", __file__, str(reading), str(int(ending)), *command]
        process = subprocess.Popen(words, pass_fds=(reading,), start_new_session=True, **options)
    except BaseException:
        os.close(writing)
        raise
    finally:
        os.close(reading)
    try:
        yield process
    finally:
        os.close(writing)
        with suppress(subprocess.TimeoutExpired):
            process.wait(None if math.isinf(patience) else patience)
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()


@contextmanager
def passing_folder(path: str) -> Iterator[str]:
    """A folder that is removed at the end of the block, or of this process if that ends first, even by SIGKILL."""
    words = [sys.executable, "-I", "-S", __file__, REMOVE, path]
    guard = subprocess.Popen(words, stdin=subprocess.PIPE, start_new_session=True)
    try:
        yield path
    finally:
        guard.communicate()
        _remove(path)  # what threads of this process have written since; and all, if the guard was killed


def _remove(path: str) -> None:
    """Remove a folder into which somebody may still be writing."""
    deadline = time.monotonic() + SECONDS_TO_END
    while os.path.exists(path) and time.monotonic() < deadline:
        shutil.rmtree(path, ignore_errors=True)


def kill_descendants() -> None:
    """Kill all programs that this one has started, and those that they have; return when they are gone."""
    found: set[int] = set()
    # Stopped first: one that ran on could start another behind our back.
    while new := _descendants() - found:
        _signal_all(new, signal.SIGSTOP)
        found |= new
    _signal_all(found, signal.SIGKILL)
    deadline = time.monotonic() + SECONDS_TO_END
    while not found.isdisjoint(_alive()) and time.monotonic() < deadline:
        time.sleep(0.01)


def _descendants() -> set[int]:
    children: dict[int, list[int]] = {}
    for process, parent in _alive().items():
        children.setdefault(parent, []).append(process)
    found: set[int] = set()
    todo = [os.getpid()]
    while todo:
        ours = children.get(todo.pop(), [])
        found.update(ours)
        todo.extend(ours)
    return found


def _alive() -> dict[int, int]:
    """The parent of each process of this machine that has not ended."""
    parents = {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, parent, *_ = file.read_text().rpartition(")")[2].split()  # the name may hold anything
            if state not in "ZX":  # a zombie holds no file and starts nothing
                parents[int(file.parent.name)] = int(parent)
    return parents


def _signal_all(processes: set[int], what: signal.Signals) -> None:
    for process in processes:
        with suppress(OSError):
            os.kill(process, what)


def _guard(pipe: int, ending: int, command: Sequence[str]) -> int:
    """Run the program until it ends or the pipe closes; its exit code, as a shell would tell it."""

    def end(*_: Any) -> None:
        os.killpg(0, ending)

    def watch() -> None:
        os.read(pipe, 1)
        end()
        time.sleep(SECONDS_TO_END)
        os.killpg(0, signal.SIGKILL)

    if ending != signal.SIGKILL:
        signal.signal(ending, lambda *_: None)  # the guard is of the group that it signals
    signal.signal(signal.SIGTERM, end)
    try:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    except OSError as error:
        print(f"{command[0]} could not be run: {error.strerror}", file=sys.stderr)
        return 127
    threading.Thread(target=watch, daemon=True).start()
    code = child.wait()
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    if sys.argv[1] == REMOVE:
        sys.stdin.read()  # to the end of its other side's owner
        _remove(sys.argv[2])
        sys.exit()
    sys.exit(_guard(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))
