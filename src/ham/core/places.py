"""Places of things, `module:name`: a table of them can be listed before anything in it is imported."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from ham.core.errors import InputError


def at(place: str) -> Any:
    """What is there."""
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)


def chosen(places: Mapping[str, str], name: str, what: str) -> Any:
    """The one of a table that has this name; `what` it is, where there is none."""
    if name not in places:
        raise InputError(f"no {what} is named {name!r}; there are {', '.join(places)}")
    return at(places[name])
