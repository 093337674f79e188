"""Locks on files, which the system lets go of when their holder dies."""

from __future__ import annotations

from typing import BinaryIO

try:
    import fcntl
except ImportError:  # Windows
    import msvcrt

    def _lock(file: BinaryIO) -> None:
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]

else:

    def _lock(file: BinaryIO) -> None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def lock_at_once(file: BinaryIO) -> bool:
    """Hold the file until it is closed; whether nobody else held it."""
    try:
        _lock(file)
    except OSError:
        return False
    return True
