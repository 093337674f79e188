"""Weights in a safetensors file whose header holds the run that made them: written, found and loaded."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load as tensors_from_bytes
from safetensors.torch import save as tensors_to_bytes
from torch import Tensor

from ham import tasks
from ham.config import FORMAT, Run, require_readable
from ham.core.errors import InputError
from ham.core.files import read_bytes, read_json, write_whole
from ham.core.text import meant
from ham.models import Model
from ham.tasks import Task

PRETRAINED = Path(__file__).parents[1] / "pretrained"
CHECKPOINT = "checkpoint.safetensors"
LARGEST_FILE = 1 << 30
"""Bytes of the largest checkpoint or state that is read; the paper's models have some 40,000."""
LARGEST_HEADER = 1 << 20
"""Bytes of its header, which become some thirty times as many of memory; the paper's models have some 5,000."""


@dataclass(frozen=True)
class Trained:
    """A model that can be used, with the task it was trained for and how."""

    model: Model
    task: Task
    run: Run


def save_checkpoint(path: Path, run: Run, weights: Mapping[str, Tensor]) -> None:
    """Weights that can be loaded, evaluated and shipped: the run that made them is in the header."""
    contiguous = {name: tensor.detach().clone().contiguous() for name, tensor in weights.items()}
    header = {"format": str(FORMAT), "run": run.to_json()}
    write_whole(path, to_bytes(contiguous, header))


def load(name: str | Path, task: str | None = None) -> Trained:
    """A trained model: a run's folder, a checkpoint file, or the name of a shipped model.

    A checkpoint may name `file.py:Class` as its task. It is never that name that makes the file's
    code run: such a task has to be given.
    """
    path = find(name)
    tensors, header = read_tensors(path)
    run = _run_in(header, path)
    own = tasks.get(tasks.named(run.task, task, path))
    # Shapes alone first: a file that lies about its widths must not make us allocate them.
    with torch.device("meta"):
        _check_weights(run.model.build(own).float(), tensors, path)
    model = run.model.build(own).float()
    model.load_state_dict(tensors)
    return Trained(model.eval(), own, run)


def run_of(name: str | Path) -> Run:
    """The run that made a checkpoint."""
    path = find(name)
    return _run_in(read_tensors(path)[1], path)


def _run_in(header: Mapping[str, str], path: Path) -> Run:
    if "run" not in header:
        raise InputError(f"{path} does not say which run it is from: it is not a checkpoint of ham")
    return Run.from_json(header["run"], str(path))


def start_from(model: Model, name: str) -> None:
    """Give a model the weights of a trained one, of whatever task."""
    path = find(name)
    tensors, _ = read_tensors(path)
    try:
        _check_weights(model, tensors, path)
    except InputError as error:
        raise InputError(f"cannot start from {name}, whose widths are others: {error}") from None
    model.load_state_dict(tensors)


def lasting(name: str | Path) -> str:
    """A name that stands for the same checkpoint wherever it is used: a shipped model's, or a whole path."""
    path = find(name)
    return path.parent.name if path.is_relative_to(PRETRAINED) else str(path.absolute())


def find(name: str | Path) -> Path:
    """The checkpoint file that a name stands for."""
    path = Path(name)
    if path.is_dir():
        if not (path / CHECKPOINT).is_file():
            raise InputError(f"{path} holds no {CHECKPOINT}; has its first epoch ended?")
        return path / CHECKPOINT
    if path.is_file():
        return path
    for candidate in (str(name), str(name).replace("-", "_").lower()):
        if candidate in shipped():
            return PRETRAINED / candidate / CHECKPOINT
    known = shipped()
    there = meant(str(name), known) or f" ({', '.join(known) or 'none yet'})"
    raise InputError(f"{name} is neither a run's folder, nor a checkpoint, nor a shipped model{there}")


def shipped() -> list[str]:
    """Names of the models that come with the package."""
    return sorted(path.parent.name for path in PRETRAINED.glob(f"*/{CHECKPOINT}"))


def _check_weights(model: Model, tensors: dict[str, Tensor], path: Path) -> None:
    expected = model.state_dict()
    for name in sorted(expected.keys() ^ tensors.keys()):
        has = "lacks" if name in expected else "has an unknown"
        raise InputError(f"{path} {has} tensor {name!r}")
    for name, tensor in expected.items():
        found = tensors[name]
        if found.shape != tensor.shape or found.dtype != tensor.dtype:
            raise InputError(
                f"{path}: {name} is {found.dtype} {tuple(found.shape)}, "
                f"should be {tensor.dtype} {tuple(tensor.shape)}"
            )
        if not torch.isfinite(found).all():
            raise InputError(f"{path}: {name} holds values that are not finite")


def to_bytes(tensors: Mapping[str, Tensor], header: dict[str, str]) -> bytes:
    """A safetensors file whose bytes depend on its content alone; the library shuffles its header."""
    data = tensors_to_bytes(dict(tensors), header)
    size = int.from_bytes(data[:8], "little")
    described = json.dumps(json.loads(data[8 : 8 + size]), sort_keys=True, separators=(",", ":")).encode()
    described += b" " * (-len(described) % 8)
    return len(described).to_bytes(8, "little") + described + data[8 + size :]


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors and the header of a safetensors file of this format."""
    data = read_bytes(path, LARGEST_FILE)
    size = int.from_bytes(data[:8], "little")
    if LARGEST_HEADER < size <= len(data):
        raise InputError(f"{path} has a header of {size:,} bytes; at most {LARGEST_HEADER:,} are read")
    try:
        tensors = tensors_from_bytes(data)
        text = data[8 : 8 + size].decode("utf-8")
    except (SafetensorError, ValueError, TypeError, KeyError, RuntimeError, OverflowError) as error:
        raise InputError(f"{path} is damaged or not a safetensors file: {error}") from None
    header = read_json(text, f"the header of {path}").get("__metadata__") or {}
    version = header.get("format")
    require_readable(int(version) if version in ("1", "2") else version, str(path))
    return tensors, header
