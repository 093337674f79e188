"""The engines that run the memory, and which one is in use.

`reference` is plain PyTorch: any device, any float type, the definition. `native` is the C++
engine for float32 on the CPU, built on first use. `auto`, the default, takes the native engine
where it can be had and says once which one it took.
"""

from __future__ import annotations

import logging
import os
from typing import Literal, get_args

from torch import Tensor, float32

from ham.core.errors import InputError
from ham.ops.episode import Episode, entropy_of, log_prob_of

Backend = Literal["auto", "native", "reference"]

_log = logging.getLogger("ham")
_asked: Backend | None = None
_announced = False


def set_backend(name: Backend) -> None:
    """Choose the engine for this process; the default is `$HAM_BACKEND`, or `auto`."""
    global _asked
    _asked = _valid(name)


def backend() -> Backend:
    """The engine asked for, by `set_backend` or the environment."""
    return _asked or _valid(os.environ.get("HAM_BACKEND") or "auto")


def native_for(*tensors: Tensor) -> bool:
    """Whether the native engine is to run these tensors; an error if it was asked for and cannot."""
    global _announced
    asked = backend()
    if asked == "reference":
        return False
    from ham.ops import native

    fits = all(tensor.dtype == float32 and tensor.device.type == "cpu" for tensor in tensors)
    if asked == "native":
        if not native.available():
            raise InputError(f"the native engine was asked for and cannot be had: {native.why_not()}")
        if not fits:
            raise InputError("the native engine takes float32 tensors on the CPU; use the reference backend")
        return True
    if not fits:
        return False
    if not _announced:
        _announced = True
        if native.available():
            _log.info("backend: native")
        else:
            _log.warning("backend: reference (%s)", native.why_not())
    return native.available()


def _valid(name: str) -> Backend:
    for known in get_args(Backend):
        if name == known:
            return known
    raise InputError(f"the backend must be one of {', '.join(get_args(Backend))}, got {name!r}")


__all__ = ["Backend", "Episode", "backend", "entropy_of", "log_prob_of", "native_for", "set_backend"]
