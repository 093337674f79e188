"""Hierarchical Attentive Memory (Andrychowicz & Kurach, 2016).

`ham.HAM` is the memory as an ordinary module, `ham.LSTMHAM` and `ham.RawHAM` are the paper's
models. Everything is imported on first use, so that the command line starts fast.
"""

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "HAM": "ham.models",
    "SoftHAM": "ham.models",
    "LSTMHAM": "ham.models",
    "RawHAM": "ham.models",
    "Model": "ham.models",
    "Task": "ham.tasks",
    "InputError": "ham.core.errors",
    "set_backend": "ham.ops",
    "load": "ham.runs",
    "solve": "ham.use.solve",
}

if TYPE_CHECKING:
    from ham.core.errors import InputError
    from ham.models import HAM, LSTMHAM, Model, RawHAM, SoftHAM
    from ham.ops import set_backend
    from ham.runs import load
    from ham.tasks import Task
    from ham.use.solve import solve


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'ham' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


__all__ = [
    "HAM",
    "LSTMHAM",
    "InputError",
    "Model",
    "RawHAM",
    "SoftHAM",
    "Task",
    "load",
    "set_backend",
    "solve",
]
