"""Options that only the owner of their names can check."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ham.config.checks import checked, require


class Options(Mapping[str, float]):
    """Numbers by name, which can be compared and hashed.

    >>> Options(varied=0.6)["varied"]
    0.6
    """

    def __init__(self, /, **values: float):
        self._values = dict(sorted(values.items()))

    @classmethod
    def from_plain(cls, data: Any, where: str) -> Options:
        require(isinstance(data, Mapping), f"{where} should be an object, got {data!r}")
        return cls(**{str(name): checked(float, value, f"{where}: {name}") for name, value in data.items()})

    def __getitem__(self, name: str) -> float:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __hash__(self) -> int:
        return hash(tuple(self._values.items()))

    def __repr__(self) -> str:
        return f"Options({', '.join(f'{name}={value}' for name, value in self._values.items())})"
