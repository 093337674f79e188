"""A trained model with all that belongs to it: its task, the run that made it, and that run's log."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from ham import tasks
from ham.config import Run
from ham.core.files import read_text
from ham.core.rows import Rows
from ham.core.tensors import check_weights
from ham.models import Model, hub
from ham.runs.checkpoint import PRETRAINED, checkpoint_bytes, find, read_tensors, run_in
from ham.runs.folder import METRICS, RunFolder, lines_of
from ham.tasks import Task


@dataclass(frozen=True, repr=False)
class Trained:
    """A model that can be used, with the task it was trained for and how.

    Whatever takes the name of a model takes this too: `ham.solve`, `ham.evaluate`, `ham.trace`, `ham.stress`,
    `ham.view`.
    """

    model: Model
    task: Task
    run: Run
    path: Path | None = None
    """The file that it was loaded from."""

    @property
    def log(self) -> Rows:
        """An epoch of its training a row: `longest`, `error`, `loss`, `seconds` and more; empty if there is no log."""
        return Rows(RunFolder(self.path.parent).metrics() if self.path else [])

    @property
    def parameters(self) -> int:
        """How many numbers it has learned."""
        return sum(tensor.numel() for tensor in self.model.parameters())

    def save_pretrained(self, folder: str | Path, *, license: str | None = None) -> Path:
        """Write a folder that can be uploaded to the Hugging Face Hub as it is; `ham.load(folder)` reads it.

        It holds `config.json`, `model.safetensors`, the log, and a model card, `README.md`, with the licence if you
        name one. Shipped models have ours.
        """
        shipped = self._shipped_in
        name = shipped.name if shipped else self.task.name
        files = {
            hub.CONFIG: self.run.to_json().encode(),
            hub.WEIGHTS: checkpoint_bytes(self.run, self.model.state_dict()),
            hub.CARD: hub.card(
                f"{name}: {self.task.summary}",
                self._described(name),
                tags=("algorithmic-reasoning", self.task.name),
                license=license or ("apache-2.0" if shipped else None),
            ),
        }
        if self.log:
            files[METRICS] = lines_of(self.log)
        return hub.write(folder, files)

    @property
    def _shipped_in(self) -> Path | None:
        """The package's own folder that it is from."""
        folder = self.path.parent.resolve() if self.path else None
        return folder if folder is not None and folder.parent == PRETRAINED.resolve() else None

    def _described(self, name: str) -> str:
        """What a card says; of a shipped model with its measured errors."""
        own = f", task={self.run.task!r}" if ".py:" in self.run.task else ""
        example = f"\nham.solve(trained, {self.task.example!r})" if self.task.example else ""
        parts = [
            f"A {self.run.model.kind} of {self.parameters:,} parameters (Hierarchical Attentive Memory, Andrychowicz & "
            f"Kurach, 2016), trained on inputs of up to {self.run.data.leaves} rows.",
            f"```python\nimport ham\n\ntrained = ham.load(folder{own}){example}\nham.evaluate(trained)\n```",
        ]
        # What else may lie in the folder of a run, or be linked there, is not for everyone to read.
        card = self._shipped_in / "card.md" if self._shipped_in else None
        if card is not None and card.is_file() and not card.is_symlink():
            parts.append(read_text(card).partition("\n")[2].strip())
        elif best := [epoch for epoch in self.log if epoch["best"]]:
            parts.append(
                f"Validation error of whole sequences: {best[-1]['error']:.2f}% on inputs of up to "
                f"{best[-1]['longest']} rows (epoch {best[-1]['epoch']}, seed {self.run.seed})."
            )
        return "\n\n".join(parts)

    def __repr__(self) -> str:
        return (
            f"Trained({self.task.name!r}, kind={self.run.model.kind!r}, parameters={self.parameters}, "
            f"leaves={self.run.data.leaves})"
        )


def load(name: str | Path, task: str | Task | None = None) -> Trained:
    """A trained model, ready to be used.

    Args:
        name: a run's folder, a checkpoint file, or the name of a shipped model, such as "sort".
        task: another task than the one it was trained on, by name or as it is. A checkpoint may name
            `file.py:Class` as its task; it is never that name that makes the file's code run, so such a task has
            to be given.
    """
    path = find(name)
    tensors, header = read_tensors(path)
    run = run_in(header, path)
    own = task if isinstance(task, Task) else tasks.get(tasks.named(run.task, task, path))
    _check_fit(run, own, tensors, path)
    return Trained(_network(run, own, tensors), own, run, path)


ModelLike = str | Path | Trained
"""A trained model, or a name that `load` knows it by."""


def loaded(model: ModelLike, task: str | Task | None = None) -> Trained:
    """What `load` gives for a name; a model that was loaded already, as it is or for another task."""
    if not isinstance(model, Trained):
        return load(model, task)
    if task is None:
        return model
    own, tensors = task if isinstance(task, Task) else tasks.get(task), model.model.state_dict()
    _check_fit(model.run, own, tensors, model.path or Path(model.task.name))
    if own.every == model.task.every:
        return replace(model, task=own)
    # A task may say how many accesses a symbol takes, and the network has it from there.
    return replace(model, task=own, model=_network(model.run, own, tensors))


def _network(run: Run, task: Task, tensors: dict[str, Tensor]) -> Model:
    model = run.model.build(task)
    model.load_state_dict(tensors)
    return model.eval()


def _check_fit(run: Run, task: Task, tensors: dict[str, Tensor], path: Path) -> None:
    """Refuse weights that are not those of the run's model for the task.

    By their shapes alone: a file that lies about its widths must not make us allocate them.
    """
    with torch.device("meta"):
        check_weights(run.model.build(task), tensors, path)
