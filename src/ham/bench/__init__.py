"""How fast the engine is, beside plain PyTorch, torch.compile, JAX and softmax attention.

Everything is measured in one process, contestants taking turns, and what counts is the best of
several repetitions of each call: what else the machine does then hurts all alike, or none. The
two heavy peers, `benchmarks/jax_peer.py` and `benchmarks/compile_peer.py`, are in the repository
only.
"""

from __future__ import annotations

from ham.bench.measure import FULL, QUICK, Measured, Plan, measure
from ham.bench.report import as_json, markdown, ratios, write_report

__all__ = ["FULL", "QUICK", "Measured", "Plan", "as_json", "markdown", "measure", "ratios", "write_report"]
