"""What a run leaves on disk, and how it is read back.

    config.json              the run: task, architecture, training, seed
    metrics.jsonl            a line an epoch
    checkpoint.safetensors   the best weights so far, with the run in its header
    state.safetensors        where training stands, to resume from

Every file is replaced as a whole or not at all, and none of them can execute code when read.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as tensors_from_bytes
from safetensors.torch import save as tensors_to_bytes
from torch import Tensor

from ham import tasks
from ham.config import FORMAT, Run
from ham.errors import InputError
from ham.nn import Model
from ham.plain import read_bytes, read_json, read_text
from ham.tasks import Task

PRETRAINED = Path(__file__).parent / "pretrained"
CONFIG, METRICS, CHECKPOINT, STATE = (
    "config.json",
    "metrics.jsonl",
    "checkpoint.safetensors",
    "state.safetensors",
)
LARGEST_FILE = 1 << 30
"""Bytes of the largest checkpoint or state that is read; the paper's models have some 40,000."""
RECORD = {"epoch": int, "phase": str, "longest": int, "best": bool}
RECORD |= dict.fromkeys(("error", "bit_error", "loss", "train_error", "entropy", "seconds"), float)
"""What is read again of an epoch's record, and its type."""


def quality(record: Mapping[str, Any]) -> tuple[int, float, float]:
    """How epochs, and runs, are compared: longer inputs first, then error, then loss."""
    loss = record["loss"] if math.isfinite(record["loss"]) else math.inf
    return record["longest"], -record["error"], -loss


@dataclass(frozen=True)
class Trained:
    """A model that can be used, with the task it was trained for and how."""

    model: Model
    task: Task
    run: Run


class RunFolder:
    """The folder of one run."""

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self._held = False

    def begin(self, run: Run) -> None:
        """Start a new run here; a folder that already holds one is left alone."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"cannot make the folder {self.path}: {error.strerror}") from None
        # Two that begin at once must not both find it empty.
        with self.locked():
            if (self.path / CONFIG).exists():
                raise InputError(f"{self.path} already holds a run; continue it with --resume {self.path}")
            write_whole(self.path / CONFIG, run.to_json().encode())

    def run(self) -> Run:
        path = self.path / CONFIG
        return Run.from_json(read_text(path), str(path))

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder for one training process; the system lets go of it if the process dies.

        Who holds it already goes on holding it.
        """
        if self._held:
            yield
            return
        try:
            lock = (self.path / ".lock").open("w")
        except OSError as error:
            raise InputError(f"cannot write into {self.path}: {error.strerror}") from None
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise InputError(f"another process is training in {self.path}") from None
            self._tidy()
            self._held = True
            try:
                yield
            finally:
                self._held = False

    def _tidy(self) -> None:
        """Remove what a killed process had not finished writing; its owner held the lock we hold now."""
        for name in (CONFIG, METRICS, CHECKPOINT, STATE):
            for left in self.path.glob(f".{name}.*"):
                with suppress(OSError):
                    left.unlink()

    def metrics(self) -> list[dict]:
        """The epochs so far."""
        path = self.path / METRICS
        if not path.exists():
            return []
        records = []
        for number, line in enumerate(read_text(path).splitlines(), 1):
            where = f"{path}, line {number}"
            record = read_json(line, where, infinite=True)
            if not isinstance(record, dict):
                raise InputError(f"{where} should be an epoch's record, not a {type(record).__name__}")
            for name, kind in RECORD.items():
                if type(record.get(name)) is not kind:
                    found = repr(record[name]) if name in record else "nothing"
                    raise InputError(f"{where}: {name} should be of type {kind.__name__}, got {found}")
            if min(record["epoch"], record["longest"]) < 1:
                raise InputError(f"{where}: epoch and longest should be at least 1")
            records.append(record)
        return records

    def kept(self) -> dict:
        """The record of the epoch whose weights are in the checkpoint."""
        kept = [record for record in self.metrics() if record["best"]]
        if not kept:
            raise InputError(f"none of the epochs in {self.path} is recorded as the best")
        return kept[-1]

    def write_metrics(self, records: list[dict]) -> None:
        lines = "".join(json.dumps(record) + "\n" for record in records)
        write_whole(self.path / METRICS, lines.encode())

    def write_checkpoint(self, run: Run, weights: Mapping[str, Tensor]) -> None:
        save_checkpoint(self.path / CHECKPOINT, run, weights)

    def write_state(self, tensors: Mapping[str, Tensor], progress: Mapping[str, Any]) -> None:
        """Everything that training needs to go on to the same bits."""
        header = {"format": str(FORMAT), "progress": json.dumps(progress)}
        write_whole(self.path / STATE, _in_order(tensors, header))

    def read_state(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        path = self.path / STATE
        if not path.exists():
            return None
        tensors, header = read_tensors(path)
        progress = read_json(header.get("progress", ""), f"the progress in {path}", infinite=True)
        if not isinstance(progress, dict):
            raise InputError(f"{path} is not the state of a run: its progress is {progress!r}")
        return tensors, progress


def save_checkpoint(path: Path, run: Run, weights: Mapping[str, Tensor]) -> None:
    """Weights that can be loaded, evaluated and shipped: the run that made them is in the header."""
    contiguous = {name: tensor.detach().clone().contiguous() for name, tensor in weights.items()}
    header = {"format": str(FORMAT), "run": run.to_json()}
    write_whole(path, _in_order(contiguous, header))


def load(name: str | Path, task: str | None = None) -> Trained:
    """A trained model: a run's folder, a checkpoint file, or the name of a shipped model.

    A checkpoint may name `file.py:Class` as its task. It is never that name that makes the file's
    code run: such a task has to be given.
    """
    path = find(name)
    tensors, header = read_tensors(path)
    if "run" not in header:
        raise InputError(f"{path} does not say which run it is from: it is not a checkpoint of ham")
    run = Run.from_json(header["run"], str(path))
    own = tasks.get(tasks.named(run.task, task, path))
    # Shapes alone first: a file that lies about its widths must not make us allocate them.
    with torch.device("meta"):
        _check_weights(run.model.build(own), tensors, path)
    model = run.model.build(own)
    model.load_state_dict(tensors)
    return Trained(model.eval(), own, run)


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
    known = ", ".join(shipped()) or "none yet"
    raise InputError(f"{name} is neither a run's folder, nor a checkpoint, nor a shipped model ({known})")


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


def _in_order(tensors: Mapping[str, Tensor], header: dict[str, str]) -> bytes:
    """A safetensors file whose bytes depend on its content alone; the library shuffles its header."""
    data = tensors_to_bytes(dict(tensors), header)
    size = int.from_bytes(data[:8], "little")
    described = json.dumps(json.loads(data[8 : 8 + size]), sort_keys=True, separators=(",", ":")).encode()
    described += b" " * (-len(described) % 8)
    return len(described).to_bytes(8, "little") + described + data[8 + size :]


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors and the header of a safetensors file of this format."""
    data = read_bytes(path, LARGEST_FILE)
    try:
        tensors = tensors_from_bytes(data)
        size = int.from_bytes(data[:8], "little")
        text = data[8 : 8 + size].decode("utf-8")
    except (SafetensorError, ValueError, TypeError, KeyError, RuntimeError, OverflowError) as error:
        raise InputError(f"{path} is damaged or not a safetensors file: {error}") from None
    header = read_json(text, f"the header of {path}").get("__metadata__") or {}
    if header.get("format") != str(FORMAT):
        raise InputError(
            f"{path} has format {header.get('format')!r}; this version of ham reads format {FORMAT}"
        )
    return tensors, header


def write_whole(path: Path, data: bytes) -> None:
    """Replace a file as a whole: whoever reads it, even after a crash, sees the old or the new."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        _flush_folder(path.parent)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        raise InputError(f"cannot write {path}: {error.strerror}") from None


def _flush_folder(folder: Path) -> None:
    """Have the new name on disk too, so that a power cut cannot bring back the file before."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
