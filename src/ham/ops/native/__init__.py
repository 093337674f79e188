"""The C++ engine seen from PyTorch.

It computes what the reference defines, in float32 on the CPU. All checking of arguments happens before any
address is passed on.
"""

from ham.ops.native import episode_operation
from ham.ops.native.accesses import attend, update
from ham.ops.native.decoder import decode
from ham.ops.native.episodes import episode
from ham.ops.native.library import available, build_info, fill_with_nan, release_buffers, why_not
from ham.ops.native.reader import read

__all__ = [
    "attend",
    "available",
    "build_info",
    "decode",
    "episode",
    "episode_operation",
    "fill_with_nan",
    "read",
    "release_buffers",
    "update",
    "why_not",
]
