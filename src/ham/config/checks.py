"""Settings from plain JSON values, checked field by field, and the checks that dataclasses make themselves."""

from __future__ import annotations

import dataclasses
import functools
import numbers
import typing
from typing import Any, Literal

from ham.core.errors import InputError
from ham.core.numbers import is_finite

LARGEST = {"cells": 1 << 10, "size": 1 << 10, "hidden": 1 << 10, "every": 1 << 6}
LARGEST |= {"grid": 1 << 20, "batch": 1 << 16, "start": 1 << 20, "leaves": 1 << 20, "tallest": 1 << 20}
LARGEST |= dict.fromkeys(("runs", "batches", "validation"), 1 << 31)
LARGEST |= {"epochs": 100_000}  # as many records of epochs as can be read again
"""Of each setting. A run's file may come from elsewhere, and must not ask for more than any machine has."""


def from_dict(cls: type, data: Any, where: str, default: Any = None) -> Any:
    """A dataclass from plain JSON values; what they leave out is as in the default."""
    if not isinstance(data, dict):
        raise InputError(f"{where} should be an object, got {data!r}")
    types_of = _types_of(cls)
    known = {f.name: f for f in dataclasses.fields(cls)}
    if unknown := set(data) - set(known):
        raise InputError(f"{where} has no field {sorted(unknown)[0]!r}; there are {', '.join(sorted(known))}")
    try:
        values = {
            name: from_dict(types_of[name], value, f"{where}: {name}", _default_of(known[name]))
            if dataclasses.is_dataclass(types_of[name])
            else checked(types_of[name], value, f"{where}: {name}")
            for name, value in data.items()
        }
        return cls(**values) if default is None else dataclasses.replace(default, **values)
    except (TypeError, InputError) as error:
        message = str(error)
        raise InputError(message if message.startswith(where) else f"{where}: {message}") from None


def _default_of(field: dataclasses.Field) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return None if field.default is dataclasses.MISSING else field.default


def checked(kind: Any, value: Any, where: str) -> Any:
    """The value, if it is one of this type."""
    if hasattr(kind, "from_plain"):
        return kind.from_plain(value, where)
    if typing.get_origin(kind) is list:
        if not isinstance(value, list):
            raise InputError(f"{where} must be a list, got {value!r}")
        (item,) = typing.get_args(kind)
        return [checked(item, each, where) for each in value]
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


def require(right: bool, otherwise: str) -> None:
    if not right:
        raise InputError(otherwise)


def require_types(settings: Any) -> None:
    """Every field is of its type, as it must be to be read again; numbers of other packages become Python's own."""
    for name, kind in _types_of(settings.__class__).items():
        object.__setattr__(settings, name, checked(kind, _plain(getattr(settings, name)), name))


@functools.cache
def _types_of(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _plain(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return value
    return int(value) if isinstance(value, numbers.Integral) else float(value)


def require_in_range(settings: object, *names: str) -> None:
    for name in names:
        value, most = getattr(settings, name), LARGEST[name]
        require(value >= 1, f"{name} must be at least 1, got {value}")
        require(value <= most, f"{name} must be at most {most:,}, got {value:,}")


def require_shares(settings: object, *names: str) -> None:
    for name in names:
        value = getattr(settings, name)
        require(0 <= value <= 1, f"{name} must lie in 0 … 1, got {value}")


def require_finite(settings: Any) -> None:
    """Every number is finite and none is negative."""
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if isinstance(value, float):
            require(
                is_finite(value) and value >= 0,
                f"{field.name} must be finite and not negative, got {value}",
            )
