"""What a run leaves on disk, and trained models read back from it."""

from ham.runs.checkpoint import (
    CHECKPOINT,
    PRETRAINED,
    Trained,
    find,
    load,
    read_tensors,
    save_checkpoint,
    shipped,
)
from ham.runs.folder import CONFIG, METRICS, RECORD, STATE, RunFolder, quality

__all__ = [
    "CHECKPOINT",
    "CONFIG",
    "METRICS",
    "PRETRAINED",
    "RECORD",
    "STATE",
    "RunFolder",
    "Trained",
    "find",
    "load",
    "quality",
    "read_tensors",
    "save_checkpoint",
    "shipped",
]
