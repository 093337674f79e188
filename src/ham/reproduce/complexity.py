"""What a timestep costs as the memory grows: the complexity row of Table 1, measured.

A timestep's cost is the difference between a run of many output symbols and one of few over the
same input, so reading the input and building the tree, which every sequence pays once, cancel.
Operations are counted by PyTorch's own counter (multiplications and additions of matrices) on the
reference engine; time is the process's own, on one thread of the engine in use. Weights do not
matter to either.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from ham import ops, recipes, tasks
from ham.core.seeds import Purpose, generator
from ham.models import Model
from ham.models.kinds import KINDS

Growth = Literal["1", "log n", "n"]
PAPER: dict[str, Growth] = {name: KINDS[name].timestep for name in ("lstm", "lstm+a", "lstm+ham")}
TASK = "sort"
SIZES = tuple(1 << exponent for exponent in range(5, 12))
SYMBOLS_TO_COUNT = 1, 2
"""Output symbols of the two runs whose difference is counted: every symbol costs as many operations."""
SYMBOLS_TO_TIME = {"lstm": (8, 4104), "lstm+a": (8, 264), "lstm+ham": (8, 1032)}
"""Those whose difference is timed: enough for it to stand out from what both runs pay."""

BASES: dict[Growth, Callable[[np.ndarray], np.ndarray]] = {
    "1": np.zeros_like,
    "log n": np.log2,
    "n": np.asarray,
}


@dataclass(frozen=True)
class Fit:
    """cost ≈ constant + slope · growth(n)."""

    growth: Growth
    constant: float
    slope: float

    def text(self) -> str:
        """>>> Fit("log n", 100.0, 20.0).text()
        '100 + 20·log n'
        """
        if self.growth == "1":
            return f"{self.constant:,.3g}" if self.constant < 1000 else f"{self.constant:,.0f}"
        number = "{:,.3g}" if abs(self.slope) < 1000 else "{:,.0f}"
        constant = f"{self.constant:,.0f}" if abs(self.constant) >= 1000 else f"{self.constant:,.3g}"
        return f"{constant} + {number.format(self.slope)}·{self.growth}"


@dataclass(frozen=True)
class Cost:
    """One model's cost of a timestep at every size."""

    model: str
    sizes: tuple[int, ...]
    operations: tuple[int, ...]
    microseconds: tuple[float, ...]

    @property
    def paper(self) -> Growth:
        return PAPER[self.model]

    def to_json(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "paper": f"Θ({self.paper})",
            "leaves": list(self.sizes),
            "operations": list(self.operations),
            "microseconds": list(self.microseconds),
            "growth_of_operations": asdict(self.fit_of_operations),
            "growth_of_time": asdict(self.fit_of_time),
        }

    @property
    def fit_of_operations(self) -> Fit:
        return fit(self.sizes, self.operations)

    @property
    def fit_of_time(self) -> Fit:
        return fit(self.sizes, self.microseconds)


def measured(repeats: int = 3) -> Iterator[Cost]:
    """The cost of a timestep of each model of Table 1, as its recipe for Sort builds it."""
    for model in PAPER:
        network = recipes.get(TASK + KINDS[model].suffix).model.build(tasks.get(TASK))
        network.requires_grad_(False)
        counts, times = [], []
        for leaves in SIZES:
            run = partial(_run, network, *_input(leaves))
            counts.append(_operations(run))
            times.append(1e6 * _seconds(run, SYMBOLS_TO_TIME[model], repeats))
        yield Cost(model, SIZES, tuple(counts), tuple(times))


def fit(sizes: Sequence[int], costs: Sequence[int] | Sequence[float]) -> Fit:
    """The growth that explains the costs best, by least squares of relative errors.

    A growth that explains them no better than a slower one, by at least a quarter, is not needed.

    >>> fit((32, 64, 128), (5.0, 6.0, 7.0)).growth
    'log n'
    >>> fit((32, 64, 128), (5.0, 5.01, 4.99)).growth
    '1'
    """
    n, y = np.array(sizes, float), np.array(costs, float)
    chosen, least = None, np.inf
    for growth, basis in BASES.items():
        columns = np.stack([np.ones_like(n), basis(n)][: 1 if growth == "1" else 2], 1)
        weights, *_ = np.linalg.lstsq(columns / y[:, None], np.ones_like(y), rcond=None)
        error = float(np.sqrt(np.mean((columns @ weights / y - 1) ** 2)))
        # Noise of some percent is no growth, and no cost shrinks as the memory grows.
        if chosen is None or (error < 0.75 * least and least > 0.05 and weights[-1] > 0):
            chosen, least = Fit(growth, float(weights[0]), float(weights[1:].sum())), error
    assert chosen is not None
    return chosen


def _input(leaves: int) -> tuple[torch.Tensor, torch.Tensor]:
    batch = tasks.get(TASK).sample(generator(Purpose.TEST, 0, leaves), 1, leaves, np.array([leaves]))
    return torch.from_numpy(batch.inputs), torch.from_numpy(batch.lengths)


def _run(network: Model, inputs: torch.Tensor, lengths: torch.Tensor, symbols: int) -> None:
    network(inputs, lengths, torch.tensor([symbols]), leaves=inputs.shape[1], keep=False)


def _operations(run: Callable[[int], None]) -> int:
    counts = []
    before = ops.backend()
    ops.set_backend("reference")
    try:
        for symbols in SYMBOLS_TO_COUNT:
            with _without_onednn(), FlopCounterMode(display=False) as counter:
                run(symbols)
            counts.append(counter.get_total_flops())
    finally:
        ops.set_backend(before)
    return counts[1] - counts[0]


@contextmanager
def _without_onednn() -> Iterator[None]:
    """Without oneDNN an LSTM is made of matrix products, which the counter knows."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about GPUs that are not there
        with torch.backends.mkldnn.flags(enabled=False):
            yield


def _seconds(run: Callable[[int], None], symbols: tuple[int, int], repeats: int) -> float:
    best = dict.fromkeys(symbols, float("inf"))
    for _ in range(repeats):
        for count in symbols:
            started = time.process_time()
            run(count)
            best[count] = min(best[count], time.process_time() - started)
    few, many = symbols
    return max(best[many] - best[few], 1e-9) / (many - few)
