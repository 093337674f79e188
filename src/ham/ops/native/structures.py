"""The structures of csrc/api.h, made from what the compiler says of them: a field has its place in one file only."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from ctypes import c_double, c_float, c_int64, c_void_p
from itertools import groupby
from typing import Any, NamedTuple

from ham.ops.episode import PARTS

TERMS = (*PARTS, "entropy", "wrong")
"""What a batch cost, in the order of HamTerm."""

TYPES: dict[str, Any] = {
    "pointer": c_void_p,
    "int64": c_int64,
    "float32": c_float,
    "float64": c_double,
    "terms": c_double * len(TERMS),
}


class Field(NamedTuple):
    """One line of `ham_structures`."""

    structure: str
    structure_size: int
    name: str
    type: str
    offset: int
    size: int


class Structures:
    """Makes structures for the engine: `structures.HamAdam(weights=3)`."""

    def __init__(self, told: str):
        """`told` is what `ham_structures` says."""
        self._made: dict[str, type[ctypes.Structure]] = {}
        for name, fields in groupby(_fields(told), lambda field: field.structure):
            self._made[name] = self._make(name, list(fields))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self._made:
            raise AttributeError(f"the engine has no structure {name!r}")
        return self._made[name]

    def _make(self, name: str, fields: list[Field]) -> type[ctypes.Structure]:
        known = TYPES | self._made
        # Without a __dict__ a field that does not exist cannot be set.
        made = type(
            name,
            (ctypes.Structure,),
            {"__slots__": (), "_fields_": [(field.name, known[field.type]) for field in fields]},
        )
        for field in fields:
            ours = getattr(made, field.name)
            if (ours.offset, ours.size) != (field.offset, field.size):
                raise ValueError(f"{name}.{field.name} lies elsewhere: a field before it is missing")
        if ctypes.sizeof(made) != fields[0].structure_size:
            raise ValueError(f"{name} has {fields[0].structure_size} bytes: a field is missing at its end")
        return made


def _fields(text: str) -> Iterator[Field]:
    for line in text.splitlines():
        structure, structure_size, name, kind, offset, size = line.split()
        yield Field(structure, int(structure_size), name, kind, int(offset), int(size))
