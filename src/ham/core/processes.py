"""Programs that end with the one that started them, however that ends.

A guard, a small Python of its own, stands between the two and watches a pipe. When the pipe closes,
because its owner is done with the program or is gone, even by SIGKILL, the guard ends the program
and everything that it has started.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

SECONDS_TO_END = 10.0
"""For a program that was asked to end; then it is killed."""


@contextmanager
def guarded(command: Sequence[str], ending: signal.Signals, **options: Any) -> Iterator[subprocess.Popen]:
    """Start a program that lives no longer than this block; `ending` is the signal it then gets.

    `terminate()` on what this gives ends it too. Ctrl-C in a terminal does not reach it.
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
    with process:
        try:
            yield process
        finally:
            os.close(writing)


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
    sys.exit(_guard(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))
