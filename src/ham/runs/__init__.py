"""What a run leaves on disk, and trained models read back from it."""

from ham.runs.checkpoint import (
    CHECKPOINT,
    PRETRAINED,
    find,
    lasting,
    read_tensors,
    run_of,
    save_checkpoint,
    shipped,
    start_from,
)
from ham.runs.folder import CONFIG, METRICS, RECORD, STATE, RunFolder, quality
from ham.runs.trained import ModelLike, Trained, load, loaded

__all__ = [
    "CHECKPOINT",
    "CONFIG",
    "METRICS",
    "PRETRAINED",
    "RECORD",
    "STATE",
    "ModelLike",
    "RunFolder",
    "Trained",
    "find",
    "lasting",
    "load",
    "loaded",
    "quality",
    "read_tensors",
    "run_of",
    "save_checkpoint",
    "shipped",
    "start_from",
]
