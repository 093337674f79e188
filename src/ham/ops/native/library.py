"""The loaded C++ library: built on first use, and what it offers beside PyTorch's operations."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from ctypes import c_char_p, c_int64, py_object
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ham.ops import quick
from ham.ops.forms import constant
from ham.ops.native import compiler, prebuilt
from ham.ops.native.structures import Structures


@dataclass(frozen=True)
class Engine:
    """The loaded library and how it was built."""

    calls: ctypes.CDLL
    structures: Structures
    build: compiler.Build


_lock = threading.Lock()
_engine: Engine | None = None
_failure: str | None = None
_afterwards: list[Callable[[], None]] = []


def engine() -> Engine:
    """The engine, built on first use; a `compiler.BuildError` where it cannot be had."""
    global _engine, _failure
    with _lock:
        if _engine is None and _failure is None:
            try:
                _engine = _load()
                for register in _afterwards:
                    register()
            except compiler.BuildError as error:
                _failure = str(error)
        if _engine is None:
            raise compiler.BuildError(_failure)
        return _engine


def available() -> bool:
    """Whether the engine can be had; the first call may take the seconds of a build."""
    return not why_not()


@constant
def why_not() -> str:
    """One line on why the engine cannot be had, empty where it can."""
    if _engine is not None:
        return ""
    try:
        engine()
    except compiler.BuildError as error:
        return str(error)
    return ""


def loaded() -> ctypes.CDLL:
    """The loaded library."""
    return engine().calls


def structures() -> Structures:
    """The structures that its calls take."""
    return engine().structures


def build_info() -> compiler.Build:
    """Compiler, flags, file and build time of the loaded library."""
    return engine().build


def _load() -> Engine:
    build = prebuilt.find() or compiler.build()
    try:
        # Registers the operations of csrc/binding.cpp with PyTorch.
        torch.ops.load_library(str(build.file))
        calls = ctypes.CDLL(str(build.file))
    except (OSError, RuntimeError) as error:
        raise compiler.BuildError(f"the built engine does not load: {str(error).splitlines()[0]}") from None
    for name in ("first_not_finite", "range", "gradient", "sequence_gradient", "objective_floats"):
        getattr(calls, f"ham_{name}").restype = c_int64
    for name in ("episode", "soft", "reader", "decoder"):
        getattr(calls, f"ham_{name}_parameters").restype = c_int64
        getattr(calls, f"ham_{name}_backward").restype = c_int64
    calls.ham_structures.restype = c_char_p
    _let_accesses_be_quick(build)
    try:
        return Engine(calls, Structures(calls.ham_structures().decode()), build)
    except ValueError as error:
        raise compiler.BuildError(f"the built engine and its binding disagree: {error}") from None


def _let_accesses_be_quick(build: compiler.Build) -> None:
    functions = ctypes.PyDLL(str(build.file)).ham_quick
    functions.restype, functions.argtypes = py_object, [py_object] * 5
    example = _beside()
    if found := functions(example, example._cdata, Tensor, nn.Parameter, None):
        quick.install(found)


def when_loaded(register: Callable[[], None]) -> None:
    """Have operations registered with PyTorch that the library stands behind, once it is there."""
    _afterwards.append(register)
    if _engine is not None:
        register()


def buffer(floats: int) -> Tensor:
    """Memory for a call: from the engine's pool, to which it goes back when the last user is gone.

    Fresh pages cost milliseconds a training step. It is an ordinary tensor: what autograd saves of it, hooks may
    copy, move and bring back.
    """
    return torch.ops.ham.buffer(_beside(), floats)


def release_buffers() -> None:
    """Give back the memory kept for the next training step."""
    loaded().ham_release_buffers()


def fill_with_nan(fill: bool) -> None:
    """For tests: memory is exactly as large as asked for and full of NaN, so that what is read unwritten shows."""
    loaded().ham_fill_with_nan(c_int64(fill))


def _beside() -> Tensor:
    """Something that tells PyTorch where an operation without tensors runs."""
    return torch.empty(0, dtype=torch.float32, device="cpu")
