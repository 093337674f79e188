"""Builds the C++ engine at first use, for this very CPU, and caches the result.

The cached file's name is a hash of everything the machine code depends on: sources, compiler,
flags, CPU and torch's version, since two of the sources speak to torch in its own language.
`$HAM_CACHE` moves the cache, `$CXX` chooses the compiler, and `$HAM_SANITIZE=1` asks for a build
with the address and undefined-behaviour sanitizers.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

SOURCES = Path(__file__).parents[1] / "csrc"
# No -ffast-math: a NaN or an infinity must come out as one. Fusing multiply-adds is wanted.
FLAGS: tuple[str, ...] = (
    *("-O3", "-march=native", "-std=c++17", "-fPIC", "-pthread"),
    *("-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math"),
)
SPEAKS_TORCH = ("binding.cpp", "buffers.cpp")
"""The sources that include torch's headers: no arithmetic in them, so the compiler need not try hard."""
SANITIZE = (
    "-O1",
    "-g",
    "-fno-omit-frame-pointer",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
)


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
    compiler = find_compiler()
    version = _run([compiler, "--version"]).splitlines()[0]
    flags = FLAGS + (SANITIZE if os.environ.get("HAM_SANITIZE") == "1" else ())
    folder = cache_folder()
    file = folder / f"engine-{_key(version, flags)}.so"
    if (seconds := _seconds_if_intact(file)) is not None:
        return Build(file, compiler, version, flags, seconds, cached=True)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(file.with_suffix(".lock")):
            # Another process may have built it while this one waited.
            if (seconds := _seconds_if_intact(file)) is not None:
                return Build(file, compiler, version, flags, seconds, cached=True)
            seconds = _compile(compiler, flags, file)
    except OSError as error:
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
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ham"


def _key(version: str, flags: tuple[str, ...]) -> str:
    digest = hashlib.sha256()
    for source in sorted(SOURCES.iterdir()):
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    digest.update(repr((version, flags, _cpu(), torch.__version__)).encode())
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
    with tempfile.TemporaryDirectory(dir=file.parent) as folder:
        fresh = Path(folder) / file.name
        sources = sorted(SOURCES.glob("*.cpp"), key=lambda source: source.name not in SPEAKS_TORCH)
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            objects = list(pool.map(lambda source: _object(compiler, flags, source, Path(folder)), sources))
        _run([compiler, *flags, "-shared", *objects, *_torch_libraries(), "-o", str(fresh)])
        seconds = time.perf_counter() - started
        note = {"sha256": hashlib.sha256(fresh.read_bytes()).hexdigest(), "seconds": round(seconds, 2)}
        os.replace(fresh, file)
        note_file = Path(folder) / "note"
        note_file.write_text(json.dumps(note))
        os.replace(note_file, file.with_suffix(".json"))
    return seconds


def _object(compiler: str, flags: tuple[str, ...], source: Path, folder: Path) -> str:
    """One source compiled; the slowest come first, so that the last ones do not wait for them alone."""
    name = str(folder / f"{source.stem}.o")
    with_torch = _torch_flags() if source.name in SPEAKS_TORCH else ()
    _run([compiler, *flags, *with_torch, "-c", str(source), "-o", name])
    return name


def _torch_flags() -> tuple[str, ...]:
    include = Path(torch.__file__).parent / "include"
    headers = (f"-isystem{include}", f"-isystem{include / 'torch/csrc/api/include'}")
    return ("-O1", "-std=c++20", f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}", *headers)


def _torch_libraries() -> tuple[str, ...]:
    return (f"-L{Path(torch.__file__).parent / 'lib'}", "-ltorch_cpu", "-lc10")


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
    with file.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _run(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise BuildError(f"the C++ compiler {command[0]} could not be run: {error.strerror}") from None
    if done.returncode:
        lines = done.stderr.splitlines()
        errors = [line for line in lines if "error" in line] or lines or ["no message"]
        raise BuildError(f"{command[0]} failed: {errors[0].strip()}")
    return done.stdout or done.stderr or "unknown version"
