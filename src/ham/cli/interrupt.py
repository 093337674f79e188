"""Ctrl-C and SIGTERM are honoured within two seconds, however long the main thread computes."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

SECONDS_TO_NOTICE = 1.0
"""What is left of the two is for saving, and for Python's own end."""
UNTOUCHED = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
"""The signals that stop a command, each with its handler where nobody has set another."""


@contextmanager
def prompt() -> Iterator[None]:
    """Inside, SIGTERM is as Ctrl-C, and if the main thread does not notice them in time they end the process.

    Python raises `KeyboardInterrupt` only between two of its own steps, and one call of the engine or of
    PyTorch may take minutes. Where an exception may be dropped it ends the process too: in `__del__`, and in an
    import, as PyTorch does without NumPy if importing that fails for any reason.
    """
    main = threading.current_thread() is threading.main_thread()
    handled = {number: usual for number, usual in UNTOUCHED.items() if signal.getsignal(number) is usual}
    if not main or not handled:
        yield
        return
    reading, writing = socket.socketpair()  # not a pipe: Windows wakes up sockets alone
    writing.setblocking(False)
    noticed = threading.Event()

    def notice(number: int, frame: FrameType | None) -> None:
        noticed.set()
        if _imports(frame):
            _leave()
        signal.default_int_handler(number, frame)

    def watch() -> None:
        while number := reading.recv(1):
            if number[0] in handled and not noticed.wait(SECONDS_TO_NOTICE):
                _leave()
            noticed.clear()
        reading.close()

    def drop(exception: Any) -> None:
        if issubclass(exception.exc_type, KeyboardInterrupt):
            _leave()
        told_before(exception)

    told_before, sys.unraisablehook = sys.unraisablehook, drop
    before = signal.set_wakeup_fd(writing.fileno(), warn_on_full_buffer=False)
    for stop in handled:
        signal.signal(stop, notice)
    threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        sys.unraisablehook = told_before
        for stop, usual in handled.items():
            signal.signal(stop, usual)
        signal.set_wakeup_fd(before)
        writing.close()


def _imports(frame: FrameType | None) -> bool:
    """Whether this is done on behalf of an import, before which there is nothing to save."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def _leave() -> None:
    with suppress(OSError):
        os.write(2, b"ham: interrupted\n")
    os._exit(130)
