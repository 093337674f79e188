"""One frozen dataclass describes a whole run; the command line and the files are made from it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ham.config.checks import from_dict, require, require_types
from ham.config.data import Data
from ham.config.format_1 import upgraded
from ham.config.model import Architecture
from ham.config.objective import Objective
from ham.config.options import Options
from ham.config.schedule import END, Optimiser, Phase, Schedule
from ham.core.errors import InputError
from ham.core.files import read_json

FORMAT = 2
"""Version of what runs and checkpoints leave on disk; older ones are read too."""
READ = (1, 2)

LARGEST_MEMORY = 1 << 25
"""Numbers in the leaves of one memory, size × leaves."""
LARGEST_STEP = 1 << 28
"""Numbers that a batch keeps for its gradient."""


@dataclass(frozen=True)
class Run:
    """A whole training run: everything that decides its result.

    The defaults are what we measured to work; `paper` makes them the paper's.
    """

    task: str
    model: Architecture = field(default_factory=Architecture)
    practice: Options = field(default_factory=Options)
    """The task's own options for what is trained on, where they are not its defaults."""
    data: Data = field(default_factory=Data)
    objective: Objective = field(default_factory=Objective)
    optimiser: Optimiser = field(default_factory=Optimiser)
    schedule: Schedule = field(default_factory=Schedule)
    opening: Phase = field(default_factory=Phase)
    """Before the main phase, if `schedule.opening` asks for it."""
    main: Phase = field(default_factory=Phase)
    end: Phase = END
    seed: int = 0
    init: str = ""
    """A trained model whose weights are the first ones: a shipped one's name, or a file; without, they are random."""

    def __post_init__(self) -> None:
        require_types(self)
        require(0 <= self.seed < 1 << 63, f"seed must lie in 0 … 2^63 - 1, got {self.seed}")
        require(
            self.objective.baseline != "leave-one-out" or self.data.runs > 1,
            "the leave-one-out baseline needs runs of at least 2",
        )
        require(
            not self.objective.pull or self.model.traits.tree,
            f"objective.pull is for models with a tree, not for {self.model.kind}",
        )
        require(
            not self.objective.rightward or (self.model.every > 1 and self.model.learner.traits.decides),
            f"objective.rightward is for hard attention with several accesses a symbol (model.every), "
            f"not for {self.model.kind} with {self.model.every}",
        )
        require(
            not self.schedule.opening or self.data.start <= self.schedule.opening < self.data.leaves,
            f"schedule.opening must be 0 or lie in {self.data.start} … {self.data.leaves - 1}, "
            f"got {self.schedule.opening}",
        )
        for name, phase in (("opening", self.opening), ("main", self.main), ("end", self.end)):
            require(
                not phase.tall or self.model.traits.tree,
                f"{name}.tall is for models with a tree, not for {self.model.kind}",
            )
            require(
                phase.tall_from >= 0,
                f"{name}.tall_from must not be negative, got {phase.tall_from}",
            )
            require(
                not phase.anywhere or self.model.cell_bound > 0,
                f"{name}.anywhere needs a bound to start anywhere inside (model.cell_bound)",
            )
            require(
                not phase.stocked or self.model.learner.kind == "raw-ham",
                f"{name}.stocked is for a memory that begins empty (model.kind raw-ham), not {self.model.kind}",
            )
        largest = max(self.data.leaves, self.data.tallest)
        require(
            self.model.size * largest <= LARGEST_MEMORY,
            f"a memory holds at most {LARGEST_MEMORY:,} numbers, "
            f"got {largest:,} leaves of size {self.model.size}",
        )
        numbers = _numbers_in_a_step(self.model, self.data)
        require(
            numbers <= LARGEST_STEP,
            f"a batch keeps at most {LARGEST_STEP:,} numbers for its gradient, about {numbers:,} are asked for: "
            "lower batch, leaves, every or the model's widths",
        )

    def to_json(self) -> str:
        """The run as a run's config.json holds it."""
        plain = {**dataclasses.asdict(self), "practice": dict(self.practice)}
        return json.dumps({"format": FORMAT, **plain}, indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str, where: str) -> Run:
        """Read a run back; an error names the file and the field that is wrong."""
        data = read_json(text, where)
        if not isinstance(data, dict):
            raise InputError(f"{where} should hold a run's settings, not a {type(data).__name__}")
        version = data.pop("format", None)
        require_readable(version, where)
        return from_dict(cls, upgraded(data, where) if version == 1 else data, where)


def require_readable(version: Any, where: str) -> None:
    """Refuse a file of a version that is not known."""
    if type(version) is not int or version not in READ:
        known = " and ".join(map(str, READ))
        raise InputError(f"{where} has format {version!r}; this version of ham reads formats {known}")


def _numbers_in_a_step(model: Architecture, data: Data) -> int:
    """What a batch keeps for its gradient: of each timestep its controller and the tree that it touched."""
    leaves = data.train_up_to or data.leaves
    touched = 2 * leaves if model.traits.soft else leaves.bit_length()
    in_tree = touched * (model.size + model.hidden) if model.traits.tree else 0
    return data.batch * leaves * model.every * (model.cells + in_tree)


NOWHERE = {"opening.anywhere": 0.0, "main.anywhere": 0.0, "end.anywhere": 0.0}
"""For a model without a bound inside of which it could start."""
UNBOUNDED = {"model.cell_bound": 0.0, **NOWHERE}


def unused(model: Architecture) -> dict[str, Any]:
    """The settings of a run that a model has no use for, and is refused with, as they are without them."""
    unused: dict[str, Any] = {} if model.cell_bound else {**NOWHERE}
    if not model.traits.tree:
        unused |= {"objective.pull": 0.0, "opening.tall": 0.0, "main.tall": 0.0, "end.tall": 0.0}
    if model.every == 1 or not model.learner.traits.decides:
        unused["objective.rightward"] = 0.0
    return unused


def completed(changes: Mapping[str, Any]) -> Mapping[str, Any]:
    """Changes of a run with what they entail: where another controller takes an LSTM's place, what was asked of its
    cells goes with it.
    """
    other = changes.get("model.controller", "lstm") != "lstm"
    return {**UNBOUNDED, **changes} if other else changes


def changed(settings: Any, changes: Mapping[str, Any], within: str = "") -> Any:
    """A run, or a part of one, with some settings changed, each named by the parts it is in.

    >>> changed(Run("sort"), {"data.leaves": 8, "seed": 3}).data.leaves
    8
    """
    changes = completed(changes)
    here: dict[str, Any] = {}
    inside: dict[str, dict[str, Any]] = {}
    known = (
        {each.name for each in dataclasses.fields(settings)} if dataclasses.is_dataclass(settings) else set()
    )
    for name, value in changes.items():
        part, _, rest = name.partition(".")
        if part not in known:
            raise InputError(f"no setting is named {within}{name}")
        if rest:
            inside.setdefault(part, {})[rest] = value
        else:
            here[part] = value
    for part, its in inside.items():
        now = getattr(settings, part)
        own = isinstance(now, Options)
        here[part] = Options(**{**now, **its}) if own else changed(now, its, f"{within}{part}.")
    return replace(settings, **here)


def paper(run: Run) -> Run:
    """The run as sections 2.3 and 3.1 have it to the letter, where they say."""
    return changed(
        run,
        {
            "data.batch": 50,
            "data.mix": 0.0,
            "objective.normalise": False,
            "optimiser.averaging": 0.0,
            "schedule.patience": 100,
        },
    )
