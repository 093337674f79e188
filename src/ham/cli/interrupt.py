"""Ctrl-C is honoured within two seconds, however long the main thread computes."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

SECONDS_TO_NOTICE = 1.0
"""What is left of the two is for saving, and for Python's own end."""


@contextmanager
def prompt() -> Iterator[None]:
    """Inside, a Ctrl-C that the main thread does not notice in time ends the process.

    Python raises `KeyboardInterrupt` only between two of its own steps, and one call of the engine or of
    PyTorch may take minutes. Where an exception may be dropped it ends the process too: in `__del__`, and in an
    import, as PyTorch does without NumPy if importing that fails for any reason.
    """
    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
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
            if number[0] == signal.SIGINT and not noticed.wait(SECONDS_TO_NOTICE):
                _leave()
            noticed.clear()
        reading.close()

    def drop(exception: Any) -> None:
        if issubclass(exception.exc_type, KeyboardInterrupt):
            _leave()
        told_before(exception)

    told_before, sys.unraisablehook = sys.unraisablehook, drop
    before = signal.set_wakeup_fd(writing.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGINT, notice)
    threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        sys.unraisablehook = told_before
        signal.signal(signal.SIGINT, signal.default_int_handler)
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
    os.write(2, b"ham: interrupted\n")
    os._exit(130)
