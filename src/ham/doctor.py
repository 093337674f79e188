"""What this installation runs on, why, and how fast: what `ham doctor` shows."""

from __future__ import annotations

import os
import platform
import time
from contextlib import closing
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

import ham
from ham import ops
from ham.config import Run, Training
from ham.learn.loop import Epoch, train
from ham.ops import native
from ham.runs import RunFolder

LEAVES = 32
SECONDS = 1.5
"""For each engine; with the build in the cache the whole check stays under ten."""
BATCHES = {"native": 100, "reference": 5}
"""Batches between two looks at the clock."""


def facts() -> dict[str, Any]:
    """Versions, the native engine's build, and the backend that is active."""
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
    }


def speeds() -> dict[str, float]:
    """Training batches a second of the default Sort model with 32 leaves, on one thread."""
    asked, threads = ops.backend(), torch.get_num_threads()
    found = {}
    torch.set_num_threads(1)
    try:
        for engine in ("native", "reference") if native.available() else ("reference",):
            ops.set_backend(engine)
            found[f"{engine}_batches_a_second"] = round(_batches_a_second(engine), 1)
    finally:
        ops.set_backend(asked)
        torch.set_num_threads(threads)
    return found


def _batches_a_second(engine: str) -> float:
    """Train for a few seconds, as `ham train` would."""
    batches = BATCHES[engine]
    training = Training(
        start=LEAVES, leaves=LEAVES, mix=0.0, batches=batches, validation=1, epochs=10_000, patience=10_000
    )
    run = Run("sort", training=training)
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
