"""What users write in a file of their own and name `file.py:name`: found there, and only run for who named it."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ham.core.errors import InputError
from ham.core.text import shell_word


def is_own(name: str) -> bool:
    """Whether a name is of something in a file."""
    return ".py:" in name


def from_file(name: str, what: str) -> Any:
    """What a file calls by that name, or None; finding it runs the file's code."""
    path, _, attribute = name.rpartition(":")
    if not Path(path).is_file():
        raise InputError(f"there is no file {path} to take the {what} {attribute} from")
    if not path.endswith(".py"):
        raise InputError(
            f"{path} is no Python file to take the {what} {attribute} from: its name must end in .py"
        )
    # By a name that no other module has: dataclasses and help texts look a class's module up.
    spec = importlib.util.spec_from_file_location(str(Path(path).absolute()), path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    with errors_of(path):
        spec.loader.exec_module(module)
    return getattr(module, attribute, None)


@contextmanager
def errors_of(path: str) -> Iterator[None]:
    """What a file's code raises, as an error that says where in the file; its end of the program too."""
    try:
        yield
    except InputError:
        raise
    except (Exception, SystemExit) as error:
        raise InputError(_what_is_wrong(path, error)) from error


def named(in_file: str, given: str | None, where: object, what: str, flag: str) -> str:
    """The name to use where a run's or a model's file has one: that alone never makes code in another file run."""
    if given is None and is_own(in_file):
        raise InputError(
            f"{where} is of a {what} in a file, {in_file}; to use it runs that file's code: "
            f"if you trust it, give the {what} too ({flag}{shell_word(in_file)})"
        )
    return given or in_file


def _what_is_wrong(path: str, error: BaseException) -> str:
    """Where in a file of somebody's own it could not be read or run, and why."""
    if isinstance(error, SyntaxError):
        return f"{path}, line {error.lineno}: {error.msg}"
    places = traceback.extract_tb(error.__traceback__)
    here = [place.lineno for place in places if Path(place.filename) == Path(path).absolute()]
    line = f", line {here[-1]}" if here else ""
    return f"{path}{line}: {type(error).__name__}: {error}"
