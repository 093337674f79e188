"""Builds the C++ engine at first use, for this very CPU, and caches the result.

The cached file's name is a hash of everything the machine code depends on: sources, compiler,
flags and CPU. The library has a plain C interface and no torch headers, so torch's version is
not part of it. `$HAM_CACHE` moves the cache, `$CXX` chooses the compiler, and `$HAM_SANITIZE=1`
asks for a build with the address and undefined-behaviour sanitizers, `$HAM_SANITIZE=thread` for one with
the thread sanitizer.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import platform
import shutil
import signal
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from ham.core.errors import InputError
from ham.core.files import open_lock
from ham.core.processes import guarded

SOURCES = Path(__file__).parent / "csrc"
# No -ffast-math: a NaN or an infinity must come out as one. Fusing multiply-adds is wanted.
FLAGS: tuple[str, ...] = (
    *("-O3", "-march=native", "-std=c++17", "-shared", "-fPIC", "-pthread"),
    *("-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math"),
)
_TRACEABLE = ("-O1", "-g", "-fno-omit-frame-pointer")
SANITIZERS = {
    "1": (*_TRACEABLE, "-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
    "thread": (*_TRACEABLE, "-fsanitize=thread"),
}
SECONDS_TO_BUILD = 600.0
"""For a compiler, or for another process that builds the same; then the engine is given up."""
SECONDS_IN_SILENCE = 5.0
"""Then it is said what is waited for."""

_log = logging.getLogger("ham")


class BuildError(Exception):
    """The engine cannot be built here; the message is one line."""


@dataclass(frozen=True)
class Build:
    """Where the library is and how it came to be."""

    file: Path
    compiler: str
    version: str
    flags: tuple[str, ...]
    seconds: float
    """What compiling took, whenever that was."""
    cached: bool
    """Whether this process found it built."""


def build() -> Build:
    """The engine for this machine, from the cache or freshly compiled."""
    folder, compiler = cache_folder(), find_compiler()
    version = _run([compiler, "--version"]).splitlines()[0]
    flags = FLAGS + SANITIZERS.get(os.environ.get("HAM_SANITIZE", ""), ())
    file = folder / f"engine-{_key(version, flags)}.so"
    _require_own(folder, file)
    if (seconds := _seconds_if_intact(file)) is not None:
        return Build(file, compiler, version, flags, seconds, cached=True)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _locked(file.with_suffix(".lock")):
            # Another process may have built it while this one waited.
            if (seconds := _seconds_if_intact(file)) is not None:
                return Build(file, compiler, version, flags, seconds, cached=True)
            seconds = _compile(compiler, flags, file)
    except (OSError, InputError) as error:
        raise BuildError(
            f"the cache {folder} cannot be used ({error}); set HAM_CACHE to another folder"
        ) from None
    return Build(file, compiler, version, flags, seconds, cached=False)


def find_compiler() -> str:
    """The C++ compiler: `$CXX`, or the first of the usual names."""
    asked = os.environ.get("CXX")
    for name in [asked] if asked else ["g++", "clang++", "c++"]:
        if path := shutil.which(name):
            return path
    if asked:
        raise BuildError(f"the C++ compiler CXX={asked} was not found")
    raise BuildError("no C++ compiler was found; install g++ or clang++, or set CXX")


def cache_folder() -> Path:
    if folder := os.environ.get("HAM_CACHE"):
        return Path(folder)
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ham"
    except RuntimeError:
        raise BuildError("there is no home folder for the cache; set HAM_CACHE to a folder") from None


def _require_own(*paths: Path) -> None:
    """Refuse to load code that somebody else may have put there."""
    for path in paths:
        try:
            found = path.stat()
        except OSError:
            continue
        if found.st_uid not in (os.geteuid(), 0):
            raise BuildError(f"{path} belongs to another user; set HAM_CACHE to a folder of your own")
        if found.st_mode & stat.S_IWOTH:
            raise BuildError(f"{path} may be written by everybody; set HAM_CACHE to a folder of your own")


def _key(version: str, flags: tuple[str, ...]) -> str:
    digest = hashlib.sha256()
    for source in sorted(SOURCES.iterdir()):
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    digest.update(repr((version, flags, _cpu())).encode())
    return digest.hexdigest()[:20]


def _cpu() -> tuple[str, ...]:
    # -march=native means something else on every kind of CPU, and home folders are shared.
    names = ("model name", "flags", "Features", "CPU part")
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return (platform.machine(), platform.processor())
    return (platform.machine(), *sorted({line for line in lines if line.startswith(names)}))


def _compile(compiler: str, flags: tuple[str, ...], file: Path) -> float:
    started = time.perf_counter()
    prefix = f".{file.stem}."
    for left in file.parent.glob(f"{prefix}*"):
        shutil.rmtree(left, ignore_errors=True)  # who was killed there held the lock that we hold now
    with tempfile.TemporaryDirectory(prefix=prefix, dir=file.parent) as folder:
        fresh = Path(folder) / file.name
        sources = sorted(str(source) for source in SOURCES.glob("*.cpp"))
        _run([compiler, *flags, *sources, "-o", str(fresh)])
        seconds = time.perf_counter() - started
        note = {"sha256": hashlib.sha256(fresh.read_bytes()).hexdigest(), "seconds": round(seconds, 2)}
        os.replace(fresh, file)
        note_file = Path(folder) / "note"
        note_file.write_text(json.dumps(note))
        os.replace(note_file, file.with_suffix(".json"))
    return seconds


def _seconds_if_intact(file: Path) -> float | None:
    """What building the cached library took, or None if it is absent, cut short or altered."""
    try:
        note = json.loads(file.with_suffix(".json").read_text())
        intact = hashlib.sha256(file.read_bytes()).hexdigest() == note["sha256"]
        return float(note["seconds"]) if intact else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    try:
        import fcntl
    except ImportError:
        raise BuildError("the native engine needs a POSIX system") from None
    with open_lock(file) as handle:
        for seconds in _slices(f"another process that builds the engine and holds {file}"):
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(seconds)
        yield


def _slices(what: str) -> Iterator[float]:
    """Times to wait for something, one after the other; says what it is, and gives up in the end."""
    began = time.monotonic()
    said = False
    while (spent := time.monotonic() - began) < SECONDS_TO_BUILD:
        if spent > SECONDS_IN_SILENCE and not said:
            said = True
            _log.warning("waiting for %s, %.0f s at most", what, SECONDS_TO_BUILD - spent)
        yield 0.5
    raise BuildError(f"gave up waiting for {what} after {SECONDS_TO_BUILD:.0f} s")


def _run(command: list[str]) -> str:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    try:
        with guarded(command, signal.SIGKILL, text=True, errors="replace", **pipes) as process:
            for seconds in _slices(f"the C++ compiler {command[0]}"):
                with suppress(subprocess.TimeoutExpired):
                    said, complaint = process.communicate(timeout=seconds)
                    break
    except OSError as error:
        raise BuildError(f"the C++ compiler {command[0]} could not be run: {error.strerror}") from None
    if process.returncode:
        lines = complaint.splitlines()
        errors = [line for line in lines if "error" in line] or lines or ["no message"]
        raise BuildError(f"{command[0]} failed: {errors[0].strip()}")
    return said or complaint or "unknown version"
