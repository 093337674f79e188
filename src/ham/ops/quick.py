"""The usual access at once: functions of an engine that is loaded, and knows the modules from calls before.

Each gives None, before anything has changed, for whatever is not usual; then the table is asked. They do not know
tracing: who calls them asks `torch.compiler.is_compiling` first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def _not_here(*call: Any) -> Any:
    return None


attend: Callable[..., Any] = _not_here
"""Of SEARCH, state, query, uniforms or None, whether it is greedy, and the class of what it gives."""
update: Callable[..., Any] = _not_here
"""Of WRITE, JOIN, state, what was read, query, who takes part or None, and the class of what it gives."""
know: Callable[..., None] = _not_here
"""Take modules for usual, by their numbers and the facts about them that must stay: `native/known.py`."""
forget: Callable[..., None] = _not_here

NEVER, ALWAYS, AS_THE_ENVIRONMENT_SAYS = range(3)

_allowed = AS_THE_ENVIRONMENT_SAYS
_allow: Callable[[int], None] = _not_here


def allow(when: int) -> None:
    """Whether they may be used; the environment says it by `$HAM_BACKEND`."""
    global _allowed
    _allowed = when
    _allow(when)


def install(functions: tuple[Callable[..., Any], ...]) -> None:
    """Those of csrc/quick.cpp, in its order."""
    global attend, update, know, forget, _allow
    attend, update, know, forget, _allow = functions
    _allow(_allowed)
