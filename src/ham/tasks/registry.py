"""Where tasks are found: the built-in ones, those of installed packages, those in a file.

A package offers its tasks as entry points of the group `ham.tasks`; a file's task is named
`path/to/file.py:ClassName` and running it runs that file's code.
"""

from __future__ import annotations

import importlib
from importlib.metadata import entry_points
from typing import TypeVar

from ham.core import own
from ham.core.errors import InputError
from ham.core.text import meant
from ham.tasks.base import Task

BUILT_IN = (
    "reverse",
    "search",
    "merge",
    "sort",
    "add",
    "sort4",
    "stack",
    "queue",
    "priority_queue",
)

_classes: dict[str, type[Task]] = {}

AnyTask = TypeVar("AnyTask", bound=type[Task])


def register(task: AnyTask) -> AnyTask:
    """Class decorator that makes a task known by its name."""
    if not isinstance(getattr(task, "name", None), str):
        raise InputError(f'{task.__qualname__} needs a name to be registered: name = "..."')
    known = _classes.get(task.name)
    if known is not None and known.__qualname__ != task.__qualname__:
        raise InputError(f"two tasks are named {task.name!r}: {known!r} and {task!r}")
    _classes[task.name] = task
    return task


def names() -> list[str]:
    """Every task that can be named without a file, the paper's first."""
    installed = [point.name for point in entry_points(group="ham.tasks")]
    return list(dict.fromkeys([*BUILT_IN, *_classes, *installed]))


def get(name: str) -> Task:
    """The task of that name, or the one in `file.py:Class`."""
    if own.is_own(name):
        with own.errors_of(name.rpartition(":")[0]):
            return _from_file(name)()
    key = name.replace("-", "_").lower()
    if key not in _classes:
        _import(key)
    return _classes[key]()


def named(in_file: str, given: str | None, where: object, flag: str = "--task ") -> str:
    """The task to use where a file names one: that name alone never makes code in a file run."""
    return own.named(in_file, given, where, "task", flag)


def _import(name: str) -> None:
    if name in BUILT_IN:
        importlib.import_module(f"ham.tasks.{name}")
        return
    for point in entry_points(group="ham.tasks", name=name):
        register(point.load())
    if name not in _classes:
        known = names()
        there = f"there are {', '.join(known)}, or file.py:Class"
        raise InputError(f"no task is named {name!r}{meant(name, known)}; {there}")


def _from_file(name: str) -> type[Task]:
    path, _, class_name = name.rpartition(":")
    task = own.from_file(name, "task")
    if not (isinstance(task, type) and issubclass(task, Task)):
        raise InputError(f"{path} has no task class {class_name}")
    if missing := sorted(task.__abstractmethods__):
        raise InputError(f"{class_name} in {path} does not define {', '.join(missing)}")
    return task
