"""The peers that live in the repository: JAX in this process, torch.compile in one of its own."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import ham
from ham.bench.timing import Job
from ham.bench.work import BATCH, RATE, SETTINGS, Trainer, Work
from ham.core.errors import InputError
from ham.core.install import install

NEEDS_REPOSITORY = "needs benchmarks/ of ham's repository, from which ham is not running"


def benchmarks() -> Path | None:
    """The repository's folder of peers, if ham runs from a checkout."""
    folder = Path(ham.__file__).parents[2] / "benchmarks"
    return folder if (folder / "jax_peer.py").is_file() else None


def jax_peer() -> tuple[ModuleType | None, str]:
    """The JAX peer's module, or why it cannot be had; where JAX is there and the peer fails, that is an error."""
    if (folder := benchmarks()) is None:
        return None, NEEDS_REPOSITORY
    if importlib.util.find_spec("jax") is None:
        return None, f"JAX is not installed; {install('bench')} brings it"
    # One thread, as everybody else; it must be said before XLA starts.
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    spec = importlib.util.spec_from_file_location("ham_jax_peer", folder / "jax_peer.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except ImportError as error:
        raise InputError(f"{folder / 'jax_peer.py'} cannot be imported: {error}") from error
    return module, ""


def jax_trainer(peer: ModuleType, trainer: Trainer) -> Any:
    """JAX's trainer of the same model, from the same weights."""
    return peer.Trainer(
        {name: value.numpy() for name, value in trainer.model.state_dict().items()},
        discount=SETTINGS.objective.discount,
        reinforce=SETTINGS.main.reinforce,
        exploration=SETTINGS.main.exploration,
        clip=SETTINGS.optimiser.clip,
        rate=RATE,
    )


def jax_job(peer: ModuleType, work: Sequence[Work]) -> Job:
    """A training step on each batch; the first call compiles it."""
    trainer = jax_trainer(peer, Trainer())
    batches = [peer.padded(one.examples, one.uniforms, one.leaves) for one in work]
    return [partial(trainer.step, batch) for batch in batches]


def compiled_seconds(leaves: int, batches: int, repetitions: int, limit: int) -> tuple[float | None, str]:
    """Seconds of a step under torch.compile, or why there are none.

    A compilation cannot be interrupted, hence a process that can.
    """
    if (folder := benchmarks()) is None:
        return None, NEEDS_REPOSITORY
    numbers = map(str, (leaves, BATCH, batches, repetitions))
    command = [sys.executable, str(folder / "compile_peer.py"), *numbers]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=True)
    except subprocess.TimeoutExpired:
        return None, f"not within {limit} s"
    except subprocess.CalledProcessError as error:
        said = error.stderr.strip().splitlines()
        return None, f"failed: {said[-1] if said else f'exit code {error.returncode}'}"
    return float(json.loads(done.stdout)["seconds"]), ""
