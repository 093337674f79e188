"""What the bits of a run depend on besides its settings: the engine's build, PyTorch, and the kind of CPU."""

from __future__ import annotations

from typing import Any

import torch

from ham import ops
from ham.core.text import visible

LONGEST_NAME = 80


def machine() -> dict[str, str]:
    """Where this process computes. Two that agree in all of it come to the same bits."""
    here = {"torch": torch.__version__, "cpu": torch.backends.cpu.get_cpu_capability()}
    if ops.backend() != "reference":
        from ham.ops import native

        if native.available():
            # The name of the build has its sources, compiler, flags and the CPU's features in it.
            return {"engine": native.build_info().file.stem, **here}
    # PyTorch sums in another order on another number of threads.
    return {"engine": "reference", "threads": str(torch.get_num_threads()), **here}


def difference(there: Any) -> str:
    """How another machine differs from this one, in words; nothing where it does not, or nothing is known of it."""
    here = machine()
    if not isinstance(there, dict) or not there or there == here:
        return ""
    return f"{_words(there)} there, {_words(here)} here"


def _words(machine: dict) -> str:
    return ", ".join(visible(f"{name} {value}")[:LONGEST_NAME] for name, value in machine.items())
