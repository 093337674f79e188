"""Where tasks are found: the built-in ones, those of installed packages, those in a file.

A package offers its tasks as entry points of the group `ham.tasks`; a file's task is named
`path/to/file.py:ClassName` and running it runs that file's code.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from importlib.metadata import entry_points
from pathlib import Path
from typing import TypeVar

from ham.core.errors import InputError
from ham.core.text import meant, shell_word
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
    if ".py:" in name:
        return _from_file(name)()
    key = name.replace("-", "_").lower()
    if key not in _classes:
        _import(key)
    return _classes[key]()


def named(in_file: str, given: str | None, where: object, flag: str = "--task ") -> str:
    """The task to use where a file names one: that name alone never makes code in a file run."""
    if given is None and ".py:" in in_file:
        raise InputError(
            f"{where} is of a task in a file, {in_file}; to use it runs that file's code: "
            f"if you trust it, give the task too ({flag}{shell_word(in_file)})"
        )
    return given or in_file


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
    if not Path(path).is_file():
        raise InputError(f"there is no file {path} to take the task {class_name} from")
    # By a name that no other module has: dataclasses and help texts look a class's module up.
    spec = importlib.util.spec_from_file_location(str(Path(path).absolute()), path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except InputError:
        raise
    except Exception as error:
        raise InputError(_what_is_wrong(path, error)) from error
    task = getattr(module, class_name, None)
    if not (isinstance(task, type) and issubclass(task, Task)):
        raise InputError(f"{path} has no task class {class_name}")
    if missing := sorted(task.__abstractmethods__):
        raise InputError(f"{class_name} in {path} does not define {', '.join(missing)}")
    return task


def _what_is_wrong(path: str, error: Exception) -> str:
    """Where in a file of somebody's own it could not be read or run, and why."""
    if isinstance(error, SyntaxError):
        return f"{path}, line {error.lineno}: {error.msg}"
    places = traceback.extract_tb(error.__traceback__)
    here = [place.lineno for place in places if Path(place.filename) == Path(path).absolute()]
    line = f", line {here[-1]}" if here else ""
    return f"{path}{line}: {type(error).__name__}: {error}"
