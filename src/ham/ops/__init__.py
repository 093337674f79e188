"""The engines that run the memory, and which one is in use.

`reference` is plain PyTorch: any device, any float type, any module, the definition. `native` is the C++
engine for float32 on the CPU and the paper's networks, built on first use. `auto`, the default, takes for each
call the native engine where it serves it, and says once for each reason where it does not.
"""

from __future__ import annotations

from ham.ops.episode import Episode, entropy_of, log_prob_of
from ham.ops.table import Backend, backend, offer, run, set_backend

__all__ = ["Backend", "Episode", "backend", "entropy_of", "log_prob_of", "offer", "run", "set_backend"]
