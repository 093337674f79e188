"""The whole measurement, from a plan to numbers."""

from __future__ import annotations

import logging
import os
import platform
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import torch

from ham.bench import peers, profile
from ham.bench.access import ACCESSES, CALLS, access_jobs, called_jobs, softmax_job
from ham.bench.flops import episode_flops, sgemm_jobs
from ham.bench.timing import Job, interleaved, running_on
from ham.bench.work import Trainer, Work
from ham.core.errors import InputError
from ham.ops import native
from ham.runs import load
from ham.tasks.sort import KEY_BITS
from ham.use.solve import solve

_log = logging.getLogger("ham")

FULL_LANES = 64
"""Examples in the measurement of arithmetic: every lane of every vector is used."""


@dataclass(frozen=True)
class Plan:
    """What is measured, and how thoroughly."""

    sizes: tuple[int, ...] = (4, 8, 16, 32, 64, 128)
    """Leaves at which training steps are timed."""
    memories: tuple[int, ...] = tuple(1 << k for k in range(5, 21))
    """Leaves at which one access is timed."""
    reference: int = 32
    """The size at which the engine's arithmetic and everything around it are measured."""
    batches: int = 4
    repetitions: int = 7
    tall: int = 1024
    """Leaves of the taller tree in which a batch of the reference size is timed too."""
    items: int = 131_072
    """What the shipped model sorts."""
    profile: float = 2.0
    """Seconds for which `perf` looks at the op; 0 leaves it out."""
    accesses: int = ACCESSES
    compile_limit: int = 240
    """Seconds torch.compile may take at each size; 0 leaves it out."""

    def __post_init__(self) -> None:
        for leaves in (*self.sizes, *self.memories, self.reference, self.tall):
            if leaves < 2 or leaves & (leaves - 1):
                raise InputError(f"sizes must be powers of two from 2 on, got {leaves}")


FULL = Plan()
QUICK = Plan(
    sizes=(32,),
    memories=(1 << 5, 1 << 10, 1 << 20),
    batches=2,
    repetitions=8,
    compile_limit=0,
)


@dataclass(frozen=True)
class Around:
    """Seconds of the parts of a training step."""

    whole: float
    sampling: float
    op: float
    """Forward, objective and backward, which are one call."""

    @property
    def share(self) -> float:
        """What is not the op, of the whole step."""
        return 1 - self.op / self.whole


@dataclass(frozen=True)
class Measured:
    """All numbers of one run; times are in seconds."""

    plan: Plan
    machine: str
    steps: dict[str, dict[int, float]]
    """Contestant → leaves → one training step."""
    missing: dict[str, dict[int, str]]
    """Contestant → leaves → why there is no number."""
    episode_rate: float
    """Useful floating-point operations a second of the op, one thread, all lanes used."""
    sgemm_rate: float
    parts: dict[str, float]
    """Shares of the op's time, by `profile.PARTS`; empty where they could not be had."""
    around: Around
    tall: float
    """One batch's gradient in the taller tree, against the same rows in the smallest that holds them."""
    sort: float
    """Seconds in which the shipped model sorts `plan.items` items, and is judged."""
    access: dict[int, float]
    softmax: dict[int, float]
    called: dict[str, float]
    """One access called from Python, and one softmax read: forward, and with backward."""
    versions: dict[str, str] = field(default_factory=dict)


def measure(plan: Plan) -> Measured:
    """Measure everything of the plan; needs the native engine."""
    if why := native.why_not():
        raise InputError(f"there is nothing to measure: the native engine cannot be had ({why})")
    versions = {
        "Python": platform.python_version(),
        "PyTorch": torch.__version__,
        "compiler": native.build_info().version,
    }
    peer, why_no_jax = peers.jax_peer()
    if peer is not None:
        versions["JAX"] = peer.jax.__version__
    steps: dict[str, dict[int, float]] = {name: {} for name in ("native", "native 2", "eager")}
    steps |= {"compile": {}, "jax": {}}
    missing: dict[str, dict[int, str]] = {"compile": {}, "jax": {}}
    for leaves in plan.sizes:
        _log.info("training steps at n = %d", leaves)
        jobs = _engine_jobs(leaves, plan)
        if peer is None:
            missing["jax"][leaves] = why_no_jax
        else:
            jobs["jax"] = peers.jax_job(peer, _work(leaves, plan))
        for name, seconds in interleaved(jobs, plan.repetitions, within=ENGINES).items():
            steps[name][leaves] = seconds
        if plan.compile_limit <= 0:
            missing["compile"][leaves] = "left out"
            continue
        _log.info("torch.compile at n = %d", leaves)
        compiled, why = peers.compiled_seconds(leaves, plan.batches, plan.repetitions, plan.compile_limit)
        if compiled is None:
            missing["compile"][leaves] = why
        else:
            steps["compile"][leaves] = compiled
    _log.info("arithmetic, and everything around the op")
    episode_rate, sgemm_rate = _rates(plan)
    parts, why_no_parts = profile.parts(plan.reference, FULL_LANES, plan.profile)
    if not parts:
        missing["parts"] = {plan.reference: why_no_parts}
    around = _around(plan)
    _log.info("%d leaves, and %d items to sort", plan.tall, plan.items)
    tall, sort = _tall(plan), _sort(plan)
    access, softmax = {}, {}
    for leaves in plan.memories:
        _log.info("one access at n = %d", leaves)
        access[leaves], softmax[leaves] = _access(leaves, plan)
    _log.info("one access called from Python")
    called = _called(plan)
    return Measured(
        plan=plan,
        machine=_machine(),
        steps=steps,
        missing=missing,
        episode_rate=episode_rate,
        sgemm_rate=sgemm_rate,
        parts=parts,
        tall=tall,
        sort=sort,
        around=around,
        access=access,
        softmax=softmax,
        called=called,
        versions=versions,
    )


def _work(leaves: int, plan: Plan) -> list[Work]:
    rng = np.random.default_rng(leaves)
    return [Work.draw(rng, leaves) for _ in range(plan.batches)]


ENGINES: dict[str, Callable[[], AbstractContextManager]] = {
    "native": partial(running_on, "native", 1),
    "native 2": partial(running_on, "native", 2),
    "eager": partial(running_on, "reference", 1),
}


def _engine_jobs(leaves: int, plan: Plan) -> dict[str, Job]:
    """A training step on each of the same batches for each engine, which has its own weights."""
    work = _work(leaves, plan)
    jobs: dict[str, Job] = {}
    for name in ENGINES:
        trainer = Trainer()
        jobs[name] = [partial(trainer.step, one) for one in work]
    return jobs


def _rates(plan: Plan) -> tuple[float, float]:
    """Operations a second of the episode and of the best matrix product, one thread."""
    with running_on("native", 1):
        work = Work.draw(np.random.default_rng(0), plan.reference, FULL_LANES, full=True)
        op = partial(Trainer().cost, work)
        products = sgemm_jobs()
        jobs = {"op": [op]} | {name: [job] for name, (job, _) in products.items()}
        # Cheap, and what disturbs it comes in spells: long enough to outlast one.
        seconds = interleaved(jobs, 8 * plan.repetitions)
    episode = FULL_LANES * episode_flops(plan.reference) / seconds["op"]
    return episode, max(operations / seconds[name] for name, (_, operations) in products.items())


def _around(plan: Plan) -> Around:
    """A step with all that belongs to it in training: drawing the batch, and the moving average."""
    trainer = Trainer()
    average = trainer.flat.weights.clone()

    def draw(number: int) -> Work:
        return Work.draw(np.random.default_rng([0, 0, number]), plan.reference)

    def whole(number: int) -> None:
        trainer.step(draw(number))
        average.lerp_(trainer.flat.weights, 1e-3)

    numbers = range(2 * plan.batches)
    with running_on("native", 1):
        jobs: dict[str, Job] = {
            "whole": [partial(whole, number) for number in numbers],
            "sampling": [partial(draw, number) for number in numbers],
            "op": [partial(trainer.cost, draw(number)) for number in numbers],
        }
        return Around(**interleaved(jobs, 3 * plan.repetitions))


def _tall(plan: Plan) -> float:
    rng, trainer = np.random.default_rng(1), Trainer()
    short = Work.draw(rng, plan.reference)
    with running_on("native", 1):
        jobs = {
            "short": [partial(trainer.cost, short)],
            "tall": [partial(trainer.cost, short.in_taller(rng, plan.tall))],
        }
        seconds = interleaved(jobs, 3 * plan.repetitions)
    return seconds["tall"] / seconds["short"]


def _sort(plan: Plan) -> float:
    trained = load("sort")
    question = np.random.default_rng(0).integers(1 << KEY_BITS, size=(plan.items, 2)).tolist()
    with running_on("native", 1):
        return interleaved({"sort": [partial(solve, trained, question)]}, 1)["sort"]


def _access(leaves: int, plan: Plan) -> tuple[float, float]:
    """Seconds of one access, and of one softmax read."""
    with running_on("native", 1), torch.no_grad():
        jobs = access_jobs(leaves, plan.accesses) | {"softmax": softmax_job(leaves)}
        seconds = interleaved({name: [job] for name, job in jobs.items()}, plan.repetitions)
    native.release_buffers()
    return max(seconds["many"] - seconds["one"], 0.0) / plan.accesses, seconds["softmax"]


def _called(plan: Plan) -> dict[str, float]:
    """Seconds of one access, and of one softmax read, called from Python."""
    with running_on("native", 1):
        seconds = interleaved({name: [job] for name, job in called_jobs().items()}, plan.repetitions)
    return {name: of_all / CALLS for name, of_all in seconds.items()}


def _machine() -> str:
    name = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.is_file():
        models = [
            line.split(":", 1)[1].strip()
            for line in info.read_text().splitlines()
            if line.startswith("model name")
        ]
        name = models[0] if models else name
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{name}, {cores} cores"
