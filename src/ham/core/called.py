"""Folders that are called as the function they are named after: `ham.train("sort")` beside `ham.train.losses`.

The import system puts a folder into its package under the folder's name, over whatever was there. So that name can
mean a function as well only if the folder itself can be called.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from ham.core.places import at


class _Called(ModuleType):
    """A module that is called as one of the functions in it, with its signature and its docstring."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.__wrapped__(*args, **kwargs)

    @property
    def __wrapped__(self) -> Callable[..., Any]:
        return at(f"{self.__name__}.{self.__dict__['called_as']}")


def call_as(folder: str, function: str) -> None:
    """Let a folder be called as `module:function` inside it, which is imported at the first call."""
    module = sys.modules[folder]
    module.__dict__["called_as"] = function
    module.__class__ = _Called
