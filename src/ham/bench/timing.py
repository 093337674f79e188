"""Times of functions that take turns."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch

from ham import ops

Job = Sequence[Callable[[], object]]
"""Calls that are made one after the other, such as a training step on each of several batches."""

TURN = 0.04
"""Seconds that one job runs before the next has its turn; its caches are warm for most of it."""


def interleaved(
    jobs: Mapping[str, Job],
    repetitions: int,
    turn: float = TURN,
    within: Mapping[str, Callable[[], AbstractContextManager]] | None = None,
) -> dict[str, float]:
    """Seconds of a call of each job: the best of each call's repetitions, averaged over its calls.

    `within` gives what a job's turn is to happen in, which is not timed.
    """
    contexts = {name: (within or {}).get(name, nullcontext) for name in jobs}
    rounds, best = {}, {}
    for name, job in jobs.items():
        with contexts[name]():
            _times(job)
            best[name] = _times(job)
        rounds[name] = max(1, round(turn / max(sum(best[name]), 1e-9)))
    for _ in range(repetitions):
        for name, job in jobs.items():
            with contexts[name]():
                for _ in range(rounds[name]):
                    best[name] = list(map(min, best[name], _times(job)))
    return {name: sum(times) / len(times) for name, times in best.items()}


def _times(job: Job) -> list[float]:
    ends = [time.perf_counter()]
    for call in job:
        call()
        ends.append(time.perf_counter())
    return [after - before for before, after in itertools.pairwise(ends)]


@contextmanager
def running_on(engine: ops.Backend, threads: int) -> Iterator[None]:
    """The engine and the number of threads, for a while."""
    before, threads_before = ops.backend(), torch.get_num_threads()
    ops.set_backend(engine)
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        ops.set_backend(before)
        torch.set_num_threads(threads_before)
