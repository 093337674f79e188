"""The C++ engine seen from PyTorch.

It computes what the reference defines, in float32 on the CPU. All checking of arguments happens before any
address is passed on.
"""

from ham.ops.native.accesses import attend, update
from ham.ops.native.episodes import lstm_ham_episode, raw_ham_episode
from ham.ops.native.library import available, build_info, fill_with_nan, release_buffers, why_not

__all__ = [
    "attend",
    "available",
    "build_info",
    "fill_with_nan",
    "lstm_ham_episode",
    "raw_ham_episode",
    "release_buffers",
    "update",
    "why_not",
]
