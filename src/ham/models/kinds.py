"""Every kind of model: what runs, recipes and the tables call it, and what is true of it.

A new kind is an entry here and a recipe in `ham.recipes`; with `tables` it is a column of them.
Nothing is imported before a model is built, so that the command line can list kinds without torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ham.core.errors import InputError
from ham.core.places import at

if TYPE_CHECKING:
    from ham.models.model import Model
    from ham.tasks import Task


@dataclass(frozen=True)
class Kind:
    """One kind of model."""

    name: str
    """As in `--model.kind`."""
    factory: str
    """`module:Class`."""
    settings: tuple[str, ...]
    """Those of `config.Architecture` that the class takes."""
    suffix: str = ""
    """Of its recipes: `sort-lstm`. The models that the paper is about have none."""
    column: str = ""
    """Title of its column in the tables; its name, if not given."""
    tables: tuple[int, ...] = ()
    """The paper's tables that it is a column of."""
    tree: bool = False
    """Whether it has the memory of the paper."""
    decides: bool = False
    """Whether it samples decisions, which REINFORCE trains."""
    online: bool | None = None
    """For data structures alone, for the other tasks alone, or for both."""
    timestep: Literal["1", "log n", "n"] = "1"
    """How its cost of a timestep grows with the memory."""

    @property
    def title(self) -> str:
        return self.column or self.name

    @property
    def soft(self) -> bool:
        """Whether it attends to all leaves of its tree at once."""
        return self.tree and not self.decides

    def build(self, task: Task, architecture: Any) -> Model:
        """The network for a task, with fresh weights from torch's global generator."""
        if self.online not in (None, task.online):
            is_one = "is online" if task.online else "is not online"
            other = kind_for(task.online, self.suffix).name
            raise InputError(f"{task.name} {is_one}: it needs --model.kind {other}, not {self.name}")
        settings = {name: getattr(architecture, name) for name in self.settings}
        if "every" in settings:
            settings["every"] = task.every or settings["every"]
        settings |= {"soft": self.soft} if self.tree else {"online": task.online, "codec": task.outputs}
        return at(self.factory)(task.features, task.outputs.width, **settings)


_ENCODER_DECODER = "ham.models.encoder_decoder:EncoderDecoder"
_ATTENTIVE = "ham.models.attentive_decoder:AttentiveDecoder"
_LSTM_HAM, _RAW_HAM = "ham.models.lstm_ham:LSTMHAM", "ham.models.raw_ham:RawHAM"
_MEMORY = ("size", "hidden", "depth", "join", "top", "grid")
_CONTROLLER = ("controller", "cells", "cell_bound", "every")

_ALL = [
    Kind("lstm", _ENCODER_DECODER, ("cells",), suffix="-lstm", tables=(1,)),
    Kind("lstm+a", _ATTENTIVE, ("cells",), suffix="-lstm+a", tables=(1,), timestep="n"),
    Kind(
        "lstm+ham",
        _LSTM_HAM,
        (*_MEMORY, *_CONTROLLER),
        tables=(1,),
        tree=True,
        decides=True,
        online=False,
        timestep="log n",
    ),
    Kind(
        "dham",
        _LSTM_HAM,
        (*_MEMORY, *_CONTROLLER),
        suffix="-dham",
        tables=(1,),
        tree=True,
        online=False,
        timestep="n",
    ),
    Kind("raw-ham", _RAW_HAM, _MEMORY, tables=(2,), tree=True, decides=True, online=True, timestep="log n"),
    Kind(
        "raw-dham",
        _RAW_HAM,
        _MEMORY,
        suffix="-dham",
        column="dham",
        tables=(2,),
        tree=True,
        online=True,
        timestep="n",
    ),
]
KINDS = {kind.name: kind for kind in _ALL}

if TYPE_CHECKING:
    KindName = str
else:
    KindName = Literal[tuple(KINDS)]


def kind_for(online: bool, suffix: str = "") -> Kind:
    """The kind whose recipes have this suffix, for data structures or for the other tasks."""
    return next(kind for kind in KINDS.values() if kind.suffix == suffix and kind.online in (None, online))


PAPER = "-paper"
"""Ends the names of the recipes that train HAM as the paper does, to the letter: a column beside ours."""


class Column(NamedTuple):
    """A column of the paper's tables."""

    title: str
    suffix: str
    """Of the recipes behind its cells."""
    kind: Kind


def columns(table: int) -> tuple[Column, ...]:
    """The columns of one of the paper's tables."""
    found = []
    for kind in KINDS.values():
        if table in kind.tables:
            found.append(Column(kind.title, kind.suffix, kind))
            if not kind.suffix:
                found.append(Column("ham-paper", PAPER, kind))
    return tuple(found)
