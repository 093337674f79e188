"""Files: read so that nobody can make that cost more than the file is worth, replaced as a whole or not at all."""

from __future__ import annotations

import errno
import json
import math
import os
import stat
import tempfile
from collections.abc import Callable
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import Any, BinaryIO

from ham.core.errors import InputError

# Windows knows neither, and needs neither: nothing there waits for a writer when it is opened.
_NONBLOCK = getattr(os, "O_NONBLOCK", 0)
_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)
LARGEST_TEXT = 1 << 26
"""Bytes of the largest text that is read: as JSON it may take thirty times as much memory."""
LARGEST_LINE = 1 << 16
"""Bytes of the end of a log in which its last line is looked for."""


def read_bytes(path: Path, most: int) -> bytes:
    """A whole file of at most so many bytes; what is no ordinary file, or too large, is not read at all."""
    try:
        # A pipe without a writer would be waited for, a device never end.
        with os.fdopen(os.open(path, os.O_RDONLY | _NONBLOCK), "rb") as file:
            found = os.fstat(file.fileno())
            if not stat.S_ISREG(found.st_mode):
                raise InputError(f"{path} is not an ordinary file")
            if found.st_size > most:
                raise InputError(f"{path} has {found.st_size:,} bytes; at most {most:,} are read")
            return file.read()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise (
            error if isinstance(error, InputError) else InputError(f"cannot read {str(path)!r}: {error}")
        ) from None


def read_text(path: Path) -> str:
    """The text of a file, or an error that names it."""
    try:
        return read_bytes(path, LARGEST_TEXT).decode("utf-8")
    except UnicodeDecodeError:
        raise InputError(f"{path} is not a text file") from None


def read_json(text: str, where: str, *, infinite: bool = False, each: Callable[[dict], Any] = dict) -> Any:
    """The values of a JSON text, or an error that says where it is from.

    Stricter than Python's own reader, which takes the last of two equal names and numbers too large
    to be one; `infinite` allows those, and NaN, as our own files hold them. Every object goes
    through `each`.
    """

    def once_each(pairs: list[tuple[str, Any]]) -> Any:
        found: dict[str, Any] = {}
        for name, value in pairs:
            if name in found:
                raise ValueError(f"it has {name!r} twice")
            found[name] = value
        return each(found)

    def number(word: str) -> float:
        value = float(word)
        if not (infinite or math.isfinite(value)):
            raise ValueError(f"{word[:40]} is no number that can be used")
        return value

    try:
        return json.loads(text, object_pairs_hook=once_each, parse_float=number, parse_constant=number)
    except RecursionError:
        raise InputError(f"{where} is not valid JSON: it is nested too deeply") from None
    except (ValueError, OverflowError) as error:
        raise InputError(f"{where} is not valid JSON: {error}") from None


def write_whole(path: Path, data: bytes) -> None:
    """Replace a file as a whole: whoever reads it, even after a crash, sees the old or the new.

    A file keeps its mode. What is there and no ordinary file (a device, a pipe, a link) is left alone.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        mode = _mode_of(path)
        temporary.unlink(missing_ok=True)
        # Only a file that this call makes: never one, or a link, that somebody put there.
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), "wb") as file:
            if mode is not None and hasattr(os, "fchmod"):
                os.fchmod(file.fileno(), mode)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        _flush_folder(path.parent)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        raise InputError(f"cannot write {path}: {error.strerror}") from None


def require_room(path: Path, *, folder: bool = False) -> None:
    """An error now, before long work, if a file or a folder of files could not be written there after it."""
    where = path if folder else path.absolute().parent
    while folder and not where.exists() and where != where.parent:
        where = where.parent  # the nearest that is there: the others can be made in it
    if not where.is_dir():
        raise InputError(
            f"cannot write {path}: {where} is not a folder"
            if where.exists()
            else f"there is no folder {where} to write {path.name} into"
        )
    if not folder:
        _mode_of(path)
    try:
        tempfile.TemporaryFile(dir=where).close()  # asking for permissions would not tell all
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from None


def _mode_of(path: Path) -> int | None:
    """The permissions of a file that may be replaced; None where there is none yet."""
    try:
        found = path.lstat().st_mode
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(found):
        raise InputError(f"cannot write {path}: what is there is not an ordinary file")
    return stat.S_IMODE(found)


def require_no_link(path: Path) -> None:
    """An error if what is written below this folder would land somewhere else."""
    if path.is_symlink():
        raise InputError(f"{path} is a link, and none is written through; move it away")


def open_lock(path: Path) -> BinaryIO:
    """A file to lock, made if need be; nothing is ever written to it, and no link followed."""
    return _opened(path, os.O_RDWR | os.O_CREAT, "r+b")


def is_at(file: BinaryIO, path: Path) -> bool:
    """Whether an open file is still what its path names."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.lstat())
    except FileNotFoundError:
        return False


def open_log(path: Path) -> BinaryIO:
    """A file that grows, made if need be; no link is followed."""
    try:
        return _opened(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, "a+b")
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from None


def last_line(log: BinaryIO) -> str:
    """The last line of a file that grows, however long that has become; empty where there is none."""
    log.seek(max(log.seek(0, os.SEEK_END) - LARGEST_LINE, 0))
    return (log.read(LARGEST_LINE).decode(errors="replace").strip().splitlines() or [""])[-1]


def _opened(path: Path, flags: int, mode: str) -> BinaryIO:
    """An ordinary file; nothing else is opened, nor waited for."""
    try:
        file = FileIO(os.open(path, flags | _NOFOLLOW | _NONBLOCK, 0o666), mode)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
            raise InputError(f"{path} is not an ordinary file") from None
        raise
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise InputError(f"{path} is not an ordinary file")
    return file


def _flush_folder(folder: Path) -> None:
    """Have the new name on disk too, so that a power cut cannot bring back the file before."""
    if not _NOFOLLOW:
        return  # Windows opens no folders
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
