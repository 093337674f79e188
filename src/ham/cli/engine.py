"""What every command that runs a model sets up first: backend, threads, and the `ham` logger."""

from __future__ import annotations

import logging

from ham.cli.arguments import Backend
from ham.core.errors import InputError
from ham.core.text import one_line

THREADS = 1
"""PyTorch's many small operations are fastest on one thread."""

MOST_THREADS = 1024


class _OneLine(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return one_line(super().format(record))


def prepare(backend: Backend, threads: int | None) -> None:
    """Choose backend and threads for this process."""
    import torch

    from ham import ops

    if threads is not None and not 1 <= threads <= MOST_THREADS:
        raise InputError(f"threads must lie in 1 … {MOST_THREADS:,}, got {threads:,}")
    listen()
    if backend is not None:
        ops.set_backend(backend)
    ops.backend()
    torch.set_num_threads(threads or THREADS)


def listen() -> None:
    """Print what is worth knowing of what happens, a line each, on standard error."""
    logger = logging.getLogger("ham")
    if not logger.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(_OneLine("%(message)s"))
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)


def announce() -> None:
    """Have the backend chosen, built and named now, before a progress bar owns the terminal."""
    from ham.ops import table

    table.announce()
