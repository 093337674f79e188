"""What a search draws its settings from.

In a file a space is JSON, a setting's name and its values:

    {"main.learning_rate": {"log": [1e-3, 1e-2]},
     "objective.discount": {"uniform": [0.5, 1]},
     "model.hidden": {"choice": [20, 40]},
     "data.mix": 0.3}

and on the command line `--set main.learning_rate=log:1e-3:1e-2`, `=uniform:0.5:1`,
`=choice:20,40` or `=0.3`. A setting with one value is not searched.
"""

from __future__ import annotations

import dataclasses
import json
import math
import typing
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ham.config import Options, Run, completed, format_1
from ham.core.errors import InputError
from ham.core.files import read_json
from ham.core.seeds import Purpose, generator
from ham.tasks import Task

RUNS, BASELINE = "data.runs", "objective.baseline"

FIRST_NAMES = {now: before for before, now in format_1.NAMES.items()}
"""What settings were called when they were first searched: values are drawn by that name, so that a search draws the
same trials as ever."""

LARGEST = 1 << 31

Value = int | float | bool | str


@dataclass(frozen=True)
class Range:
    """Numbers between two bounds, both included, evenly or evenly in their logarithm."""

    low: int | float
    high: int | float
    log: bool = False
    whole: bool = False

    def draw(self, rng: np.random.Generator) -> Value:
        if self.log:
            value = math.exp(rng.uniform(math.log(self.low), math.log(self.high)))
        elif self.whole:
            return int(rng.integers(int(self.low), int(self.high) + 1))
        else:
            value = rng.uniform(self.low, self.high)
        value = min(max(value, self.low), self.high)  # exp(log(x)) may miss x by a bit
        return round(value) if self.whole else value

    def to_json(self) -> dict[str, list[float]]:
        return {"log" if self.log else "uniform": [self.low, self.high]}

    def __str__(self) -> str:
        return f"{self.low:g} … {self.high:g}{', evenly in the logarithm' if self.log else ''}"


@dataclass(frozen=True)
class Choice:
    """One of some values, all equally likely."""

    options: tuple[Value, ...]

    def draw(self, rng: np.random.Generator) -> Value:
        return self.options[int(rng.integers(len(self.options)))]

    def to_json(self) -> dict[str, list[Value]]:
        return {"choice": list(self.options)}

    def __str__(self) -> str:
        return ", ".join(map(str, self.options))


Space = dict[str, Range | Choice]


def default_space(base: Run, task: Task) -> Space:
    """What is worth searching for a model: the ranges that `docs/search.md` explains."""
    space: Space = {
        "main.learning_rate": Range(1e-3, 1e-2, log=True),
        "main.learning_rate_decay": Range(0.93, 0.99),
        "data.threshold": Range(0.05, 0.4),
        "data.mix": Range(0.0, 0.5),
    }
    if not base.model.traits.tree:
        return {**space, "model.cells": Choice((50, 100, 200))}
    space |= {"model.hidden": Choice((20, 40, 60)), "model.depth": Choice((1, 2))}
    if "every" in base.model.traits.settings and task.every is None:
        space["model.every"] = Choice((1, 2))
    exploration: Space = {
        "main.exploration": Range(3e-4, 5e-3, log=True),
        "main.exploration_decay": Range(0.9, 0.98),
    }
    if not base.model.traits.decides:
        return space | exploration
    return {
        **space,
        "objective.discount": Range(0.6, 1.0),
        **exploration,
        "main.reinforce": Range(0.5, 2.5),
        RUNS: Choice(tuple(runs for runs in (1, 4, 8) if base.data.batch % runs == 0)),
        "schedule.finish": Choice(tuple({0, base.schedule.epochs // 5})),
    }


def merged(base: Run, task: Task, given: Mapping[str, Any], source: str) -> tuple[Run, Space]:
    """The run that all trials share, and what differs between them: the default space, changed as given."""
    fixed = {}
    changed: Space = {}
    for name, values in given.items():
        parsed = _values(name, values, f"{source}: {name}")
        if isinstance(parsed, Range | Choice):
            changed[name] = parsed
        else:
            fixed[name] = parsed
    if BASELINE in fixed:  # stays a choice, of one: else the number of runs would decide it
        changed[BASELINE] = Choice((fixed[BASELINE],))
    elif RUNS in fixed:
        fixed[BASELINE] = _baseline(fixed[RUNS])
    base = with_settings(base, fixed, source)
    searched = {name: values for name, values in default_space(base, task).items() if name not in fixed}
    return base, searched | changed


def draw(base: Run, space: Space, seed: int, number: int) -> Run:
    """The run of one trial.

    Every setting has a generator of its own, so that to fix one or add another leaves the rest as
    they are; the data's seed is drawn the same way.
    """
    drawn = {name: values.draw(_generator(seed, number, name)) for name, values in space.items()}
    if RUNS in drawn and BASELINE not in drawn:
        drawn[BASELINE] = _baseline(drawn[RUNS])
    run = with_settings(base, drawn, f"trial {number}")
    return dataclasses.replace(run, seed=int(_generator(seed, number, "seed").integers(1 << 31)))


def with_settings(run: Run, changes: Mapping[str, Value], where: str) -> Run:
    """The run with some settings changed, each named as in `main.learning_rate`."""
    data = json.loads(run.to_json())
    for name, value in completed(changes).items():
        *parts, field = name.split(".")
        at = data
        for part in parts:
            at = at[part]
        at[field] = value
    try:
        return Run.from_json(json.dumps(data), where)
    except InputError as error:
        message = str(error)
        raise InputError(message if message.startswith(where) else f"{where}: {message}") from None


def short(name: str) -> str:
    """A setting's own name, which only those of the phases share.

    >>> short("data.mix"), short("model.soft.in_order"), short("end.reinforce")
    ('mix', 'in_order', 'end.reinforce')
    """
    return name if name.startswith(("opening.", "end.")) else name.rpartition(".")[2]


def shown(value: Value) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def setting(run: Run, name: str) -> Value:
    """The value of a setting named as in `main.learning_rate`."""
    at: Any = run
    for part in name.split("."):
        at = at.get(part, 0.0) if isinstance(at, Options) else getattr(at, part)
    return at


def from_file(text: str, where: str) -> dict[str, Any]:
    """A space file's contents, not yet checked against a run."""
    data = read_json(text, where)
    if not isinstance(data, dict):
        raise InputError(f"{where} should hold an object of settings, not a {type(data).__name__}")
    return data


def from_flags(flags: Iterable[str]) -> dict[str, Any]:
    """The same from the command line.

    >>> from_flags(["objective.discount=uniform:0.5:1", "model.hidden=choice:20,40", "data.mix=0.3"])
    {'objective.discount': {'uniform': [0.5, 1]}, 'model.hidden': {'choice': [20, 40]}, 'data.mix': 0.3}
    """
    given: dict[str, Any] = {}
    for flag in flags:
        name, equals, text = flag.partition("=")
        if not equals or not text:
            raise InputError(f"--set takes NAME=VALUES, such as data.mix=uniform:0:0.5, got {flag!r}")
        if name in given:
            raise InputError(f"--set gives {name} twice")
        how, colon, rest = text.partition(":")
        if not colon:
            given[name] = _word(text)
        elif how == "choice":
            given[name] = {how: [_word(word) for word in rest.split(",")]}
        else:
            given[name] = {how: [_word(word) for word in rest.split(":")]}
    return given


def from_json(data: Any, where: str) -> Space:
    """A space that was written by `to_json` of its values, by this version or the first."""
    space = {}
    for given, values in from_file(json.dumps(data), where).items():
        name = format_1.NAMES.get(given, given)
        parsed = _values(name, values, f"{where}: {name}")
        if not isinstance(parsed, Range | Choice):
            raise InputError(f"{where}: {name} should be a range or a choice, got {values!r}")
        space[name] = parsed
    return space


def _values(name: str, values: Any, where: str) -> Range | Choice | Value:
    kind = _type_of(name, where)
    if not isinstance(values, dict):
        return _checked(kind, values, where)
    if len(values) != 1 or next(iter(values)) not in ("uniform", "log", "choice"):
        raise InputError(f"{where} must be a value or one of uniform, log, choice, got {_brief(values)}")
    ((how, given),) = values.items()
    if not isinstance(given, list) or not given:
        raise InputError(f"{where}: {how} takes a list, got {_brief(given)}")
    if how == "choice":
        return Choice(tuple(_checked(kind, value, where) for value in given))
    if kind not in (int, float):
        raise InputError(f"{where} is no number: use choice, not {how}")
    if len(given) != 2:
        raise InputError(f"{where}: {how} takes two bounds, got {_brief(given)}")
    low, high = (_checked(kind, value, where) for value in given)
    if low > high:
        raise InputError(f"{where}: the lower bound {low} is above the upper bound {high}")
    if kind is int and max(abs(low), abs(high)) >= LARGEST:
        raise InputError(f"{where}: bounds must be below {LARGEST}, got {low} and {high}")
    if how == "log" and low <= 0:
        raise InputError(f"{where}: log needs bounds above 0, got {low}")
    return Range(low, high, log=how == "log", whole=kind is int)


def _type_of(name: str, where: str) -> Any:
    """The type of a setting, from the dataclass that has it."""
    if name in format_1.NAMES:
        raise InputError(f"{where} is {format_1.NAMES[name]} now")
    kind: Any = Run
    parts = name.split(".")
    for place, part in enumerate(parts):
        if kind is Options:
            return float
        kinds = typing.get_type_hints(kind) if dataclasses.is_dataclass(kind) else {}
        if part not in kinds or (kind is Run and not _has_parts(kinds[part])):
            there = ", ".join(kinds) if place else ", ".join(f"{own}.NAME" for own in PARTS)
            raise InputError(
                f"{where}: {'.'.join(parts[:place]) or 'a run'} has no setting {part!r}; there are {there}"
            )
        kind = kinds[part]
    if _has_parts(kind):
        raise InputError(f"{where}: {name} is a part of a run, not a setting")
    return kind


def _has_parts(kind: Any) -> bool:
    return dataclasses.is_dataclass(kind) or kind is Options


PARTS = [name for name, kind in typing.get_type_hints(Run).items() if _has_parts(kind)]


def _checked(kind: Any, value: Any, where: str) -> Any:
    if typing.get_origin(kind) is typing.Literal:
        if value not in typing.get_args(kind):
            raise InputError(
                f"{where} must be one of {', '.join(typing.get_args(kind))}, got {_brief(value)}"
            )
        return value
    if kind is float and type(value) is int and abs(value) < 1 << 53:
        value = float(value)
    if type(value) is not kind or (kind is float and not math.isfinite(value)):
        names = {int: "a whole number", float: "a finite number", bool: "true or false"}
        raise InputError(f"{where} must be {names.get(kind, kind)}, got {_brief(value)}")
    return value


def _word(text: str) -> Value:
    """A value typed on the command line: a number, true, false, or a word."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, int | float | bool) else text


def _brief(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:59]}…"


def _baseline(runs: Value) -> str:
    """Runs of one input are each other's baseline; a single one needs the learned one."""
    return "leave-one-out" if isinstance(runs, int) and runs > 1 else "learned"


def _generator(seed: int, number: int, name: str) -> np.random.Generator:
    return generator(Purpose.SEARCH, seed, number, zlib.crc32(FIRST_NAMES.get(name, name).encode()))
