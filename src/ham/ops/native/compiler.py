"""Builds the C++ engine at first use, for this very CPU, and caches the result.

The cached file's name is a hash of everything the machine code depends on: sources, compiler,
flags, CPU and torch's version, since two of the sources speak to torch in its own language.
`$HAM_CACHE` moves the cache, `$CXX` chooses the compiler, `$HAM_MARCH` another kind of processor than
this one, and `$HAM_SANITIZE=1` asks for a build with the address and undefined-behaviour sanitizers,
`$HAM_SANITIZE=thread` for one with the thread sanitizer.
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
import threading
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import torch

from ham.core.errors import InputError
from ham.core.files import open_lock
from ham.core.locks import lock_at_once
from ham.core.processes import guarded

SOURCES = Path(__file__).parents[1] / "csrc"
# No -ffast-math: a NaN or an infinity must come out as one. Fusing multiply-adds is wanted.
FLAGS: tuple[str, ...] = (
    *("-O3", "-march=native", "-std=c++17", "-fPIC", "-pthread"),
    *("-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math"),
)
OLDEST_TORCH = (2, 13)
"""Before, autograd's nodes were held in another way."""
SPEAKS_TORCH = ("binding.cpp", "buffers.cpp", "quick.cpp")
"""The sources that include torch's headers: no arithmetic in them, so the compiler need not try hard."""
_TRACEABLE = ("-O1", "-g", "-fno-omit-frame-pointer")
SANITIZERS = {
    "1": (*_TRACEABLE, "-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
    "thread": (*_TRACEABLE, "-fsanitize=thread"),
}
SECONDS_TO_BUILD = 600.0
"""For a compiler, or for another process that builds the same; then the engine is given up."""
HOW_LONG = "about half a minute on two idle cores"
SECONDS_IN_SILENCE = 5.0
"""Then it is said what is waited for."""
SECONDS_BETWEEN_LOOKS = 0.5

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
    if not hasattr(os, "geteuid"):
        raise BuildError("the native engine needs a POSIX system")
    if tuple(map(int, torch.__version__.split(".")[:2])) < OLDEST_TORCH:
        oldest = ".".join(map(str, OLDEST_TORCH))
        raise BuildError(
            f"the native engine needs PyTorch {oldest} or later, and this is {torch.__version__}"
        )
    folder, compiler = cache_folder(), find_compiler()
    version = version_of(compiler)
    flags = flags_for(os.environ.get("HAM_MARCH") or "native")
    flags += SANITIZERS.get(os.environ.get("HAM_SANITIZE", ""), ())
    file = folder / f"engine-{_key(version, flags)}.so"
    _require_own(folder, file)
    if (seconds := seconds_if_intact(file)) is not None:
        return Build(file, compiler, version, flags, seconds, cached=True)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _locked(file.with_suffix(".lock")):
            # Another process may have built it while this one waited.
            if (seconds := seconds_if_intact(file)) is not None:
                return Build(file, compiler, version, flags, seconds, cached=True)
            _log.warning("building the native engine for this CPU, once: %s", HOW_LONG)
            seconds = compile_to(file, compiler, flags)
    except (OSError, InputError) as error:
        raise BuildError(
            f"the cache {folder} cannot be used ({error}); set HAM_CACHE to another folder"
        ) from None
    return Build(file, compiler, version, flags, seconds, cached=False)


def flags_for(processor: str) -> tuple[str, ...]:
    """The compiler's flags for a kind of processor, as `-march` calls it."""
    return tuple(f"-march={processor}" if flag == "-march=native" else flag for flag in FLAGS)


def find_compiler() -> str:
    """The C++ compiler: `$CXX`, or the first of the usual names."""
    asked = os.environ.get("CXX")
    for name in [asked] if asked else ["g++", "clang++", "c++"]:
        if path := shutil.which(name):
            return os.path.abspath(path)
    if asked:
        raise BuildError(f"the C++ compiler CXX={asked} was not found")
    raise BuildError("no C++ compiler was found; install g++ or clang++, or set CXX")


def version_of(compiler: str) -> str:
    """The line in which a compiler says what it is."""
    return _run([compiler, "--version"])[0].splitlines()[0]


def cache_folder() -> Path:
    if folder := os.environ.get("HAM_CACHE"):
        return Path(folder).absolute()
    # A relative one is to be ignored, says the XDG specification; it would be the current folder's.
    if os.path.isabs(folder := os.environ.get("XDG_CACHE_HOME", "")):
        return Path(folder) / "ham"
    try:
        return Path.home() / ".cache" / "ham"
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
    return key_of(version, flags, _cpu(), torch.__version__)


def key_of(*conditions: object) -> str:
    """A name for what the sources become under these conditions."""
    digest = hashlib.sha256()
    for source in sorted(SOURCES.iterdir()):
        digest.update(source.name.encode() + b"\0" + source.read_bytes() + b"\0")
    digest.update(repr(conditions).encode())
    return digest.hexdigest()[:20]


def _cpu() -> tuple[str, ...]:
    # -march=native means something else on every kind of CPU, and home folders are shared.
    names = ("model name", "flags", "Features", "CPU part")
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return (platform.machine(), platform.processor())
    return (platform.machine(), *sorted({line for line in lines if line.startswith(names)}))


def compile_to(file: Path, compiler: str, flags: tuple[str, ...]) -> float:
    """Compile the engine, whole or not at all, with a note of its checksum beside it; the seconds that it took."""
    started = time.perf_counter()
    prefix = f".{file.stem}."
    for left in file.parent.glob(f"{prefix}*"):
        shutil.rmtree(left, ignore_errors=True)  # who was killed there held the lock that we hold now
    with tempfile.TemporaryDirectory(prefix=prefix, dir=file.parent) as folder:
        fresh = Path(folder) / file.name
        # The slowest come first, so that the last ones do not wait for them alone.
        sources = sorted(SOURCES.glob("*.cpp"), key=lambda source: source.name not in SPEAKS_TORCH)
        objects = {source: str(Path(folder) / f"{source.stem}.o") for source in sources}
        _run(*(_to_object(compiler, flags, source, name) for source, name in objects.items()))
        _run([compiler, *flags, "-shared", *objects.values(), *_torch_libraries(), "-o", str(fresh)])
        seconds = time.perf_counter() - started
        note = {"sha256": hashlib.sha256(fresh.read_bytes()).hexdigest(), "seconds": round(seconds, 2)}
        os.replace(fresh, file)
        note_file = Path(folder) / "note"
        note_file.write_text(json.dumps(note))
        os.replace(note_file, file.with_suffix(".json"))
    return seconds


def _to_object(compiler: str, flags: tuple[str, ...], source: Path, name: str) -> list[str]:
    with_torch = _torch_flags() if source.name in SPEAKS_TORCH else ()
    return [compiler, *flags, *with_torch, "-c", str(source), "-o", name]


def _torch_flags() -> tuple[str, ...]:
    include = Path(torch.__file__).parent / "include"
    headers = (f"-isystem{include}", f"-isystem{include / 'torch/csrc/api/include'}")
    return ("-O1", "-std=c++20", f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}", *headers)


def _torch_libraries() -> tuple[str, ...]:
    return (f"-L{Path(torch.__file__).parent / 'lib'}", "-ltorch_python", "-ltorch_cpu", "-lc10")


def seconds_if_intact(file: Path) -> float | None:
    """What building the cached library took, or None if it is absent, cut short or altered."""
    try:
        note = json.loads(file.with_suffix(".json").read_text())
        intact = hashlib.sha256(file.read_bytes()).hexdigest() == note["sha256"]
        return float(note["seconds"]) if intact else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


@contextmanager
def _locked(file: Path) -> Iterator[None]:
    with open_lock(file) as handle:
        for seconds in _slices(f"another process that builds the engine and holds {file}"):
            if lock_at_once(handle):
                break
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
        yield SECONDS_BETWEEN_LOOKS
    raise BuildError(f"gave up waiting for {what} after {SECONDS_TO_BUILD:.0f} s")


def _run(*commands: list[str]) -> list[str]:
    """What each command says; as many run at once as there are cores, and none outlives the first that fails."""
    stopped = threading.Event()
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        try:
            running = [pool.submit(_output, command, stopped) for command in commands]
            for seconds in _slices(f"the C++ compiler {commands[0][0]}"):
                done, left = wait(running, seconds, FIRST_EXCEPTION)
                if not left or any(future.exception() for future in done):
                    break
            for future in done:
                future.result()
        finally:
            stopped.set()
            pool.shutdown(wait=False, cancel_futures=True)
    return [future.result() for future in running]


def _output(command: list[str], stopped: threading.Event) -> str:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    try:
        # An empty element of $CPATH is the current folder, which may be a stranger's.
        with guarded(command, signal.SIGKILL, cwd="/", text=True, errors="replace", **pipes) as process:
            while not stopped.is_set():
                with suppress(subprocess.TimeoutExpired):
                    said, complaint = process.communicate(timeout=SECONDS_BETWEEN_LOOKS)
                    break
            else:
                return ""
    except OSError as error:
        raise BuildError(f"the C++ compiler {command[0]} could not be run: {error.strerror}") from None
    if process.returncode:
        lines = complaint.splitlines()
        errors = [line for line in lines if "error" in line] or lines or ["no message"]
        raise BuildError(f"{command[0]} failed: {errors[0].strip()}")
    return said or complaint or "unknown version"
