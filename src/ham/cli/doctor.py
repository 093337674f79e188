"""`ham doctor`: what this installation runs on, why, and how fast."""

from __future__ import annotations

import os
import platform
import textwrap
import time
from contextlib import closing
from tempfile import TemporaryDirectory
from typing import Any

from ham.cli import engine
from ham.cli.tables import TABLE, Forms, Table

WHOLE_WORDS: Any = {"break_long_words": False, "break_on_hyphens": False}
LEAVES = 32
SECONDS = 1.5
"""For each engine; with the build in the cache the whole check stays under ten."""
BATCHES = {"native": 100, "reference": 5}
"""Batches between two looks at the clock."""


def doctor(*, no_speed: bool = False, form: Forms = TABLE) -> None:
    """Show what this installation runs on, and how fast.

    Args:
        no_speed: leave out the speed check, training batches a second with each engine.
    """
    engine.listen()
    found = facts()
    if not no_speed:
        found |= speeds()
    if form.for_a_person:
        for name, value in found.items():
            lead = f"{name.replace('_', ' '):28}"
            print(
                textwrap.fill(str(value), 80, initial_indent=lead, subsequent_indent=" " * 28, **WHOLE_WORDS)
            )
        return
    table = Table(("what", "here"), [(name.replace("_", " "), str(value)) for name, value in found.items()])
    form.show([table], [{"what": name, "here": value} for name, value in found.items()], found)


def facts() -> dict[str, Any]:
    """Versions, the native engine's build, and the backend that is active."""
    import numpy as np
    import torch

    import ham
    from ham import ops
    from ham.ops import native
    from ham.ops.table import OPERATIONS

    found: dict[str, Any] = {
        "ham": ham.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "system": f"{platform.system()} {platform.machine()}",
        "cpus": os.cpu_count(),
        "torch_threads": torch.get_num_threads(),
        "backend_asked_for": ops.backend(),
    }
    if why := native.why_not():
        return found | {"backend_active": "none" if ops.backend() == "native" else "reference", "why": why}
    build = native.build_info()
    return found | {
        "backend_active": "reference" if ops.backend() == "reference" else "native",
        "why": "it was asked for" if ops.backend() != "auto" else "the native engine is built and loads",
        "compiler": build.version,
        "compiler_file": build.compiler,
        "flags": " ".join(build.flags),
        "cache_file": str(build.file),
        "build_seconds": round(build.seconds, 1),
        "operations_served": ", ".join(OPERATIONS),
    }


def speeds() -> dict[str, float]:
    """Training batches a second of the default Sort model with 32 leaves, on one thread."""
    import torch

    from ham import ops
    from ham.ops import native

    asked, threads = ops.backend(), torch.get_num_threads()
    found = {}
    torch.set_num_threads(1)
    try:
        for name in ("native", "reference") if native.available() else ("reference",):
            ops.set_backend(name)
            found[f"{name}_batches_a_second"] = round(_batches_a_second(name), 1)
    finally:
        ops.set_backend(asked)
        torch.set_num_threads(threads)
    return found


def _batches_a_second(backend: str) -> float:
    """Train for a few seconds, as `ham train` would."""
    from ham.config import Data, Run, Schedule
    from ham.runs import RunFolder
    from ham.train.loop import Epoch, train

    batches = BATCHES[backend]
    data = Data(start=LEAVES, leaves=LEAVES, mix=0.0, batches=batches, validation=1)
    run = Run("sort", data=data, schedule=Schedule(epochs=10_000, patience=10_000))
    with TemporaryDirectory() as path:
        folder = RunFolder(path)
        folder.begin(run)
        with closing(event for event in train(run, folder) if isinstance(event, Epoch)) as epochs:
            next(epochs)  # warms up
            done, started = 0, time.perf_counter()
            while (spent := time.perf_counter() - started) < SECONDS:
                next(epochs)
                done += batches
    return done / spent
