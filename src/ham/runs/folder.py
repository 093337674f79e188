"""What a run leaves on disk, and how it is read back.

    config.json              the run: task, architecture, training, seed
    metrics.jsonl            a line an epoch
    checkpoint.safetensors   the best weights so far, with the run in its header
    state.safetensors        where training stands, to resume from

Every file is replaced as a whole or not at all, and none of them can execute code when read.
"""

from __future__ import annotations

import json
import logging
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from torch import Tensor

from ham.config import FORMAT, Run
from ham.core.errors import InputError
from ham.core.files import is_at, open_lock, read_json, read_text, write_whole
from ham.core.locks import lock_at_once
from ham.core.own import is_own
from ham.core.tensors import to_bytes
from ham.core.text import shell_word
from ham.runs.checkpoint import CHECKPOINT, checkpoint_bytes, read_tensors
from ham.runs.machine import difference, machine

CONFIG, METRICS, STATE, LOCK = "config.json", "metrics.jsonl", "state.safetensors", ".lock"
RECORD = {"epoch": int, "phase": str, "longest": int, "best": bool}
RECORD |= dict.fromkeys(("error", "bit_error", "loss", "train_error", "entropy", "seconds"), float)
"""What is read again of an epoch's record, and its type."""
PROGRESS = {"epoch": int, "batch": int, "phase": str, "seconds": float}
"""What is read of a state by others than training, which looks at the rest of it."""
LARGEST_COUNT = 1 << 53
MOST = {"error": 100, "bit_error": 100, "train_error": 100, "entropy": 1}
"""Percentages, and nats of which a coin has 0.69."""

PROLONGED = {"schedule.epochs", "schedule.finish"}
"""The settings of a run that change if it goes on for longer."""
NAMED_AGAIN = {"task", "objective.baseline"}
"""Those that are given again when a run goes on, if they are in a file: wherever that is by then."""

_log = logging.getLogger("ham")


def quality(record: Mapping[str, Any]) -> tuple[int, float, float]:
    """How epochs, and runs, are compared: longer inputs first, then error, then loss."""
    loss = record["loss"] if math.isfinite(record["loss"]) else math.inf
    return record["longest"], -record["error"], -loss


def _require_typed(found: Mapping[str, Any], kinds: Mapping[str, type], where: str) -> None:
    """Refuse values of another type than they are to be calculated with, and numbers that no run comes to."""
    for name, kind in kinds.items():
        if type(found.get(name)) is not kind:
            got = repr(found[name])[:80] if name in found else "nothing"
            raise InputError(f"{where}: {name} should be of type {kind.__name__}, got {got}")
        if (kind is int or name == "seconds") and not 0 <= found[name] < LARGEST_COUNT:
            raise InputError(f"{where}: {name} should lie in 0 … 2^53, got {str(found[name])[:80]}")
        if name in MOST and not 0 <= found[name] <= MOST[name]:
            raise InputError(f"{where}: {name} should lie in 0 … {MOST[name]}, got {found[name]}")


def lines_of(records: Sequence[Mapping[str, Any]]) -> bytes:
    """Epochs as their file holds them."""
    return "".join(json.dumps(record) + "\n" for record in records).encode()


def _flat(settings: Mapping[str, Any], within: str = "") -> dict[str, Any]:
    """Settings by their whole names, such as data.batch."""
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        flat |= _flat(value, f"{within}{name}.") if isinstance(value, dict) else {within + name: value}
    return flat


class RunFolder:
    """The folder of one run."""

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self._lock: BinaryIO | None = None
        """Held by the one process that trains here."""

    def begin(self, run: Run) -> None:
        """Start a new run here; a folder that already holds one is left alone."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"cannot make the folder {self.path}: {error.strerror}") from None
        # Two that begin at once must not both find it empty.
        with self.locked():
            if (self.path / CONFIG).exists():
                again = f"continue it with --resume {shell_word(self.path)}"
                raise InputError(f"{self.path} already holds a run; {again}")
            if left := [name for name in (STATE, CHECKPOINT, METRICS) if (self.path / name).exists()]:
                raise InputError(f"{self.path} holds the {left[0]} of another run, without its {CONFIG}")
            self.write_config(run)

    def write_config(self, run: Run) -> None:
        self._write(CONFIG, run.to_json().encode())

    def run(self) -> Run:
        path = self.path / CONFIG
        return Run.from_json(read_text(path), str(path))

    @contextmanager
    def locked(self, patience: float = 0.0) -> Iterator[None]:
        """Hold the folder for one training process; the system lets go of it if the process dies.

        Who holds it already goes on holding it. `patience` is for a process that is still dying, in seconds.
        """
        if self._lock is not None:
            yield
            return
        try:
            lock = open_lock(self.path / LOCK)
        except OSError as error:
            raise InputError(f"cannot write into {self.path}: {error.strerror}") from None
        with lock:
            until = time.monotonic() + patience
            while not lock_at_once(lock):
                if time.monotonic() >= until:
                    raise InputError(f"another process is training in {self.path}")
                time.sleep(0.2)
            self._tidy()
            self._lock = lock
            try:
                yield
            finally:
                self._lock = None

    def _write(self, name: str, data: bytes) -> None:
        """Replace a file of the folder that is held, not of another that has its name by now."""
        if self._lock is not None and not is_at(self._lock, self.path / LOCK):
            raise InputError(
                f"{self.path} was moved or removed while it was trained in; nothing more is written there"
            )
        write_whole(self.path / name, data)

    def _tidy(self) -> None:
        """Remove what a killed process had not finished writing; its owner held the lock we hold now."""
        for name in (CONFIG, METRICS, CHECKPOINT, STATE):
            for left in self.path.glob(f".{name}.*"):
                # As `write_whole` names them: others' files, an editor's for one, may look alike.
                if left.name.removeprefix(f".{name}.").isdecimal():
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
            _require_typed(record, RECORD, where)
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
        self._write(METRICS, lines_of(records))

    def write_checkpoint(self, run: Run, weights: Mapping[str, Tensor]) -> None:
        self._write(CHECKPOINT, checkpoint_bytes(run, weights))

    def write_state(self, run: Run, tensors: Mapping[str, Tensor], progress: Mapping[str, Any]) -> None:
        """Everything that training needs to go on to the same bits, of which run, and where they are the same."""
        header = {"format": str(FORMAT), "run": run.to_json(), "progress": json.dumps(progress)}
        self._write(STATE, to_bytes(tensors, {**header, "machine": json.dumps(machine())}))

    def _require_own(self, left_by: Run) -> None:
        """Refuse a state that another run has left; one that is prolonged, or whose own files moved, is the same."""
        own, other = (_flat(json.loads(run.to_json())) for run in (self.run(), left_by))
        for name in own.keys() & other.keys() - PROLONGED:
            in_files = name in NAMED_AGAIN and is_own(own[name]) and is_own(other[name])
            if own[name] != other[name] and not in_files:
                raise InputError(
                    f"{self.path / STATE} is not of the run in {CONFIG}: "
                    f"it was left by one with {name} {other[name]}, not {own[name]}"
                )

    def warn_if_elsewhere(self) -> None:
        """Say so if the state was left by another engine, PyTorch or kind of CPU than goes on now."""
        path = self.path / STATE
        _, header = read_tensors(path)
        if why := difference(read_json(header.get("machine", "{}"), f"the machine in {path}")):
            _log.warning("the bits may differ from those of a run that was never stopped: %s", why)

    def read_state(self) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        path = self.path / STATE
        if not path.exists():
            return None
        tensors, header = read_tensors(path)
        if "run" in header:
            self._require_own(Run.from_json(header["run"], f"the run in {path}"))
        progress = read_json(header.get("progress", ""), f"the progress in {path}", infinite=True)
        refusal = f"{path} is not the state of a run"
        if not isinstance(progress, dict):
            raise InputError(f"{refusal}: its progress is {progress!r}")
        _require_typed(progress, PROGRESS, refusal)
        return tensors, progress
