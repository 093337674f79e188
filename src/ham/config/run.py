"""One frozen dataclass describes a whole run; the command line and the files are made from it."""

from __future__ import annotations

import dataclasses
import json
import math
import typing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from ham.core.errors import InputError
from ham.core.files import read_json

if TYPE_CHECKING:
    from ham.models import Model
    from ham.tasks import Task

FORMAT = 1
"""Version of what runs and checkpoints leave on disk."""

LARGEST = {"cells": 1 << 10, "size": 1 << 10, "hidden": 1 << 10, "every": 1 << 6}
LARGEST |= {"batch": 1 << 16, "start": 1 << 20, "leaves": 1 << 20}
LARGEST |= dict.fromkeys(("runs", "batches", "validation", "patience"), 1 << 31)
LARGEST |= {"epochs": 100_000}  # as many records of epochs as can be read again
"""Of each setting. A run's file may come from elsewhere, and must not ask for more than any machine has."""
LARGEST_MEMORY = 1 << 25
"""Numbers in the leaves of one memory, size × leaves."""
LARGEST_STEP = 1 << 28
"""Numbers that a batch keeps for its gradient."""

Kind = Literal["lstm+ham", "raw-ham", "lstm", "lstm+a"]
WITH_A_TREE = ("lstm+ham", "raw-ham")


@dataclass(frozen=True)
class Architecture:
    """Which network, and how wide."""

    kind: Kind = "lstm+ham"
    """lstm+ham, raw-ham (for data structures), or a baseline: lstm, lstm+a (with attention)."""
    cells: int = 20
    """Size l of the LSTM."""
    size: int = 20
    """Width d of a value in the memory."""
    hidden: int = 20
    """Hidden width of the memory's networks."""
    depth: int = 2
    """Layers of the memory's networks, 1 or 2."""
    every: int = 1
    """Memory accesses per output symbol (η); a task may fix it."""
    soft: bool = False
    """Attend softly to all leaves (DHAM)."""

    def __post_init__(self) -> None:
        _require_in_range(self, "cells", "size", "hidden", "every")
        _require(self.depth in (1, 2), f"depth must be 1 or 2, got {self.depth}")
        _require(
            not self.soft or self.kind in WITH_A_TREE,
            f"model.soft is for models with a tree, not for {self.kind}",
        )

    def build(self, task: Task) -> Model:
        """The network for a task, with fresh weights from torch's global generator."""
        from ham import models

        widths = (task.features, task.bits)
        memory: dict[str, Any] = {
            "size": self.size,
            "hidden": self.hidden,
            "depth": self.depth,
            "soft": self.soft,
        }
        match self.kind:
            case "lstm+ham":
                if task.online:
                    raise InputError(f"{task.name} is online: it needs --model.kind raw-ham, not lstm+ham")
                return models.LSTMHAM(*widths, cells=self.cells, every=task.every or self.every, **memory)
            case "raw-ham":
                if not task.online:
                    raise InputError(
                        f"{task.name} is not online: it needs --model.kind lstm+ham, not raw-ham"
                    )
                return models.RawHAM(*widths, **memory)
            case "lstm":
                return models.EncoderDecoder(*widths, cells=self.cells, online=task.online)
            case "lstm+a":
                return models.AttentiveDecoder(*widths, cells=self.cells, online=task.online)
        raise InputError(f"no model is of kind {self.kind!r}; there are {', '.join(typing.get_args(Kind))}")


@dataclass(frozen=True)
class Training:
    """How a model is trained. The defaults are what we measured to work; `paper()` is the paper."""

    batch: int = 64
    """Sampled runs in a batch."""
    runs: int = 1
    """Sampled runs of each input; more than one gives the leave-one-out baseline its peers."""
    epochs: int = 100
    batches: int = 1000
    """Batches in an epoch."""
    validation: int = 10_000
    """Examples on which the model is validated after each epoch."""

    learning_rate: float = 4e-3
    learning_rate_decay: float = 0.96
    """Factor on the learning rate after each epoch."""
    clip: float = 5.0
    """Largest norm of the gradient."""
    averaging: float = 0.999
    """Decay of the moving average of the weights that is evaluated and kept; 0 turns it off."""

    reward: Literal["hamming", "log-probability"] = "hamming"
    """What REINFORCE maximises: output bits that are right, or their log-probability."""
    reinforce: float = 1.0
    """Weight of the REINFORCE term."""
    discount: float = 0.9
    """Discount γ of later rewards, per timestep."""
    baseline: Literal["learned", "leave-one-out", "none"] = "learned"
    normalise: bool = True
    """Divide advantages by their root mean square at each timestep."""
    entropy: Literal["inverse", "negative"] = "inverse"
    """The exploration term: α/H(p), or the usual −αH(p). With soft attention, of every turn, times the probability
    of coming to it."""
    exploration: float = 1.5e-3
    """Its weight α."""
    exploration_decay: float = 0.95
    """Factor on α after each epoch."""

    start: int = 4
    """Leaves of the first tree of the curriculum."""
    leaves: int = 32
    """Leaves of its last tree."""
    train_up_to: int = 0
    """Leaves of the largest tree that is trained on; 0 is all of them. Below `leaves`, validation goes
    further than training, which tells how a recipe generalises without a look at longer test inputs."""
    threshold: float = 0.2
    """Validation error below which inputs get longer."""
    growth: float = 2.0
    """By what factor. With 2 the tree doubles each time, which is the paper's curriculum; below, inputs of several
    lengths have the same tree, the smallest that holds them."""
    restart: bool = False
    """Begin again whenever inputs get longer: from the averaged weights, with the first learning rate and
    exploration."""
    mix: float = 0.3
    """Share of batches whose tree is drawn from all sizes so far instead of the current one."""
    varied: float = 0.0
    """Share of Add's training questions whose numbers differ in length, and share of those with blank rows among the
    others, so that the number of digits does not say where each digit is."""
    cramped: float = 0.0
    """Share of a data structure's batches whose memory has half as many leaves as the sequences have operations, so
    that each leaf is needed: with as many leaves, half of them may be left out and nothing is ever lost."""
    pull: float = 0.0
    """Weight of h²/2, over the values h that JOIN makes in an example. Without it they grow from level to level, and a
    tree taller than those trained on looks like none of them."""
    tree_clip: float = 0.0
    """Soft attention only: the largest component of the gradient of an example's tree, at every timestep; 0 is any."""
    in_order: float = 0.0
    """Soft attention only: a symbol's loss counts e^(−in_order · the losses of all symbols before it). What follows a
    mistake is read from a memory that the mistake has spoilt, and its gradient is noise."""

    finish: int = 0
    """Epochs of the end phase for exactness, at the end of `epochs`: from the averaged weights,
    without exploration."""
    finish_learning_rate: float = 1e-3
    """Its first learning rate."""
    finish_decay: float = 0.9
    finish_reinforce: float = 2.0
    patience: int = 10
    """The main phase ends after so many epochs on the last stage without a lower validation error."""

    def __post_init__(self) -> None:
        for name in ("start", "leaves"):
            value = getattr(self, name)
            _require(value >= 1 and not value & (value - 1), f"{name} must be a power of two, got {value}")
        _require_in_range(
            self, "batch", "runs", "epochs", "batches", "validation", "patience", "start", "leaves"
        )
        _require(self.start <= self.leaves, f"start {self.start} is larger than leaves {self.leaves}")
        _require(
            self.train_up_to == 0 or self.start <= self.train_up_to <= self.leaves,
            f"train_up_to must be 0 or lie in {self.start} … {self.leaves}, got {self.train_up_to}",
        )
        _require(self.batch % self.runs == 0, f"batch {self.batch} is no multiple of runs {self.runs}")
        _require(
            0 <= self.finish <= self.epochs, f"finish {self.finish} must lie in 0 … {self.epochs} epochs"
        )
        _require(
            self.baseline != "leave-one-out" or self.runs > 1,
            "the leave-one-out baseline needs runs of at least 2",
        )
        for name in ("learning_rate_decay", "exploration_decay", "finish_decay"):
            _require(0 <= getattr(self, name) <= 1, f"{name} must lie in 0 … 1, got {getattr(self, name)}")
        _require(1 < self.growth <= 2, f"growth must be above 1 and at most 2, got {self.growth}")
        for name in ("discount", "mix", "threshold", "averaging", "varied", "cramped"):
            _require(0 <= getattr(self, name) <= 1, f"{name} must lie in 0 … 1, got {getattr(self, name)}")
        for name, value in dataclasses.asdict(self).items():
            if isinstance(value, float):
                _require(
                    math.isfinite(value) and value >= 0,
                    f"{name} must be finite and not negative, got {value}",
                )

    @classmethod
    def paper(cls, **changes: Any) -> Training:
        """Section 2.3 and 3.1 to the letter, where they say."""
        return cls(
            **{
                "batch": 50,
                "averaging": 0.0,
                "normalise": False,
                "mix": 0.0,
                "patience": 100,
                **changes,
            }
        )


@dataclass(frozen=True)
class Run:
    """A whole training run: everything that decides its result."""

    task: str
    model: Architecture = field(default_factory=Architecture)
    training: Training = field(default_factory=Training)
    seed: int = 0

    def __post_init__(self) -> None:
        _require(0 <= self.seed < 1 << 63, f"seed must lie in 0 … 2^63 - 1, got {self.seed}")
        _require(
            not self.training.pull or self.model.kind in WITH_A_TREE,
            f"training.pull is for models with a tree, not for {self.model.kind}",
        )
        for name in ("tree_clip", "in_order"):
            _require(
                not getattr(self.training, name) or self.model.soft,
                f"training.{name} is for models with soft attention (model.soft)",
            )
        _require(
            self.model.size * self.training.leaves <= LARGEST_MEMORY,
            f"a memory holds at most {LARGEST_MEMORY:,} numbers, "
            f"got {self.training.leaves:,} leaves of size {self.model.size}",
        )
        numbers = _numbers_in_a_step(self.model, self.training)
        _require(
            numbers <= LARGEST_STEP,
            f"a batch keeps at most {LARGEST_STEP:,} numbers for its gradient, about {numbers:,} are asked for: "
            "lower batch, leaves, every or the model's widths",
        )

    def to_json(self) -> str:
        return json.dumps({"format": FORMAT, **dataclasses.asdict(self)}, indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str, where: str) -> Run:
        """Read a run back; an error names the file and the field that is wrong."""
        data = read_json(text, where)
        if not isinstance(data, dict):
            raise InputError(f"{where} should hold a run's settings, not a {type(data).__name__}")
        if (version := data.pop("format", None)) != FORMAT:
            raise InputError(f"{where} has format {version!r}; this version of ham reads format {FORMAT}")
        return from_dict(cls, data, where)


def _numbers_in_a_step(model: Architecture, training: Training) -> int:
    """What a batch keeps for its gradient: of each timestep its controller and the tree that it touched."""
    leaves = training.train_up_to or training.leaves
    touched = 2 * leaves if model.soft else leaves.bit_length()
    in_tree = touched * (model.size + model.hidden) if model.kind in WITH_A_TREE else 0
    return training.batch * leaves * model.every * (model.cells + in_tree)


def from_dict(cls: type, data: Any, where: str) -> Any:
    """A dataclass from plain JSON values, checked field by field."""
    if not isinstance(data, dict):
        raise InputError(f"{where} should be an object, got {data!r}")
    types_of = typing.get_type_hints(cls)
    known = {f.name for f in dataclasses.fields(cls)}
    if unknown := set(data) - known:
        raise InputError(f"{where} has no field {sorted(unknown)[0]!r}; there are {', '.join(sorted(known))}")
    try:
        return cls(
            **{name: _checked(types_of[name], value, f"{where}: {name}") for name, value in data.items()}
        )
    except (TypeError, InputError) as error:
        message = str(error)
        raise InputError(message if message.startswith(where) else f"{where}: {message}") from None


def _checked(kind: Any, value: Any, where: str) -> Any:
    if dataclasses.is_dataclass(kind):
        return from_dict(typing.cast(type, kind), value, where)
    if typing.get_origin(kind) is list:
        if not isinstance(value, list):
            raise InputError(f"{where} must be a list, got {value!r}")
        (item,) = typing.get_args(kind)
        return [_checked(item, each, where) for each in value]
    if typing.get_origin(kind) is Literal:
        choices = typing.get_args(kind)
        if value not in choices:
            raise InputError(f"{where} must be one of {', '.join(choices)}, got {value!r}")
        return value
    if kind is float and type(value) is int and abs(value) < 1 << 53:
        value = float(value)
    if type(value) is not kind:
        raise InputError(f"{where} must be {kind.__name__}, got {value!r}")
    return value


def _require_in_range(settings: object, *names: str) -> None:
    for name in names:
        value, most = getattr(settings, name), LARGEST[name]
        _require(value >= 1, f"{name} must be at least 1, got {value}")
        _require(value <= most, f"{name} must be at most {most:,}, got {value:,}")


def _require(right: bool, otherwise: str) -> None:
    if not right:
        raise InputError(otherwise)
