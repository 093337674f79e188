"""Which engine serves which call, and why not.

A call is an operation's name and its arguments. The table asks every engine in turn "do you serve this, and if
not, why not?"; the first one that does runs it, and what none serves runs in plain PyTorch, the definition.
With `auto` that is said once for each reason; with `native` it is an error that gives the reason.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Any, Literal, Protocol, get_args, runtime_checkable

from ham.core.errors import InputError
from ham.ops import quick
from ham.ops.forms import constant

Backend = Literal["auto", "native", "reference"]

OPERATIONS = {
    "attend": "one access: descend to a leaf and read it",
    "update": "one access: write a leaf and rejoin the nodes above it",
    "episode": "a whole run of a model with a memory",
    "read_rows": "an LSTM over rows, for the baselines",
    "write_symbols": "an LSTM that writes symbols, for the baselines",
    "gradient": "the gradient of a whole training batch",
    "cross_entropy": "the objective of a model that decides nothing, with its gradient",
    "adam": "an optimiser's step",
}
"""What engines may serve."""

_log = logging.getLogger("ham")


@runtime_checkable
class Engine(Protocol):
    """Runs some of the operations: those it has a method for, with the arguments of the reference."""

    name: str

    def why_absent(self) -> str:
        """Why it cannot be had at all, in one line; empty if it can."""

    def why_not(self, operation: str, *call: Any) -> str:
        """Why it does not serve this call, in one line; empty if it does."""


_engines: list[Engine] = []
_asked: Backend | None = None
_said: set[str] = set()


def register(engine: Engine) -> None:
    """Let an engine be asked, after those that are there already."""
    _engines.append(engine)
    _allow_quick_accesses()


def unregister(engine: Engine) -> None:
    _engines.remove(engine)
    _allow_quick_accesses()


def engines() -> tuple[Engine, ...]:
    """The engines beside the reference, in the order in which they are asked."""
    if not _engines:
        from ham.ops.native.engine import NATIVE

        register(NATIVE)
    return tuple(_engines)


def set_backend(name: Backend) -> None:
    """Choose the engine for this process; the default is `$HAM_BACKEND`, or `auto`."""
    global _asked
    _asked = _valid(name)
    _allow_quick_accesses()


@constant
def backend() -> Backend:
    """The engine asked for, by `set_backend` or the environment."""
    return _asked or _valid(os.environ.get("HAM_BACKEND") or "auto")


def run(operation: str, reference: Callable, *call: Any) -> Any:
    """Serve a call by the first engine that can, or by the reference."""
    asked = backend()
    if asked == "reference":
        return reference(*call)
    reason = ""
    for engine in _engines or engines():
        if asked == "auto" or asked == engine.name:
            why = engine.why_not(operation, *call)
            if not why:
                return getattr(engine, operation)(*call)
            reason = reason or why
    _tell(asked, operation, reason)
    return reference(*call)


def _allow_quick_accesses() -> None:
    """They are the native engine's: not for who asked for another one, or while another one is asked before it."""
    if _asked == "reference" or (_engines and _engines[0].name != "native"):
        quick.allow(quick.NEVER)
    else:
        quick.allow(quick.ALWAYS if _asked else quick.AS_THE_ENVIRONMENT_SAYS)


def offer(operation: str, *call: Any, expected: bool = False) -> Any:
    """What the first engine gives that has a shortcut for a call, else None: nobody has to have one.

    Where one is `expected`, its lack is told as `run` tells it.
    """
    if (asked := backend()) == "reference":
        return None
    reason = ""
    for engine in engines():
        if asked in ("auto", engine.name):
            if not (why := engine.why_not(operation, *call)):
                return getattr(engine, operation)(*call)
            reason = reason or why
    if expected:
        _tell(asked, operation, reason)
    return None


def announce() -> None:
    """Say which engine runs what it can, having it built first."""
    asked = backend()
    if asked == "reference":
        return
    for engine in engines():
        if not (why := engine.why_absent()):
            _log.info("backend: %s", engine.name)
            return
        if asked == engine.name:
            raise InputError(f"the {asked} engine was asked for and cannot be had: {why}")
        _said.add(why)
        _log.warning("backend: reference (%s)", why)


def _tell(asked: Backend, operation: str, reason: str) -> None:
    """That the reference runs a call, or an error where another engine was asked for."""
    if asked != "auto":
        raise InputError(f"the {asked} engine does not serve {operation}: {reason}")
    _say(operation, reason)


@constant
def _say(operation: str, reason: str) -> None:
    if reason not in _said:
        _said.add(reason)
        _log.warning("%s runs on the reference: %s", operation, reason)


def _valid(name: str) -> Backend:
    for known in get_args(Backend):
        if name == known:
            return known
    raise InputError(f"the backend must be one of {', '.join(get_args(Backend))}, got {name!r}")
