"""Weights in a safetensors file whose header holds the run that made them: written, found and read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor, nn

from ham.config import FORMAT, Run, require_readable
from ham.core.errors import InputError
from ham.core.files import write_whole
from ham.core.tensors import check_weights, from_file, plain, to_bytes
from ham.core.text import meant
from ham.models.hub import WEIGHTS

PRETRAINED = Path(__file__).parents[1] / "pretrained"
CHECKPOINT = "checkpoint.safetensors"
"""The best weights of a run; in a folder as the Hub has them they are in `WEIGHTS`, the same bytes."""


def checkpoint_bytes(run: Run, weights: Mapping[str, Tensor]) -> bytes:
    """Weights that can be loaded, evaluated and shipped: the run that made them is in the header."""
    return to_bytes(plain(weights), {"format": str(FORMAT), "run": run.to_json()})


def save_checkpoint(path: Path, run: Run, weights: Mapping[str, Tensor]) -> None:
    write_whole(path, checkpoint_bytes(run, weights))


def run_of(name: str | Path) -> Run:
    """The run that made a checkpoint."""
    path = find(name)
    return run_in(read_tensors(path)[1], path)


def run_in(header: Mapping[str, str], path: Path) -> Run:
    """The run in the header of a checkpoint."""
    if "run" not in header:
        raise InputError(f"{path} does not say which run it is from: it is not a checkpoint of ham")
    return Run.from_json(header["run"], str(path))


def start_from(model: nn.Module, name: str) -> None:
    """Give a model the weights of a trained one, of whatever task."""
    path = find(name)
    tensors, _ = read_tensors(path)
    try:
        check_weights(model, tensors, path)
    except InputError as error:
        raise InputError(f"cannot start from {name}, whose widths are others: {error}") from None
    model.load_state_dict(tensors)


def lasting(name: str | Path) -> str:
    """A name that stands for the same checkpoint wherever it is used: a shipped model's, or a whole path."""
    path = find(name)
    return path.parent.name if path.is_relative_to(PRETRAINED) else str(path.absolute())


def find(name: str | Path) -> Path:
    """The checkpoint file that a name stands for."""
    if not str(name):
        raise InputError(
            "a model's name is empty; give a run's folder, a checkpoint or the name of a shipped model"
        )
    path = Path(name)
    if path.is_dir():
        for file in (CHECKPOINT, WEIGHTS):
            if (path / file).is_file():
                return path / file
        raise InputError(f"{path} holds no {CHECKPOINT}; has its first epoch ended?")
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


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors and the header of a safetensors file of this format."""
    tensors, header = from_file(path)
    version = header.get("format")
    if version == "pt":
        raise InputError(f"{path} holds no run; a memory alone is read by ham.HAM.from_pretrained(folder)")
    require_readable(int(version) if version in ("1", "2") else version, str(path))
    return tensors, header
