"""matplotlib, as every figure here uses it."""

from __future__ import annotations

import sys
from contextlib import chdir
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ham.core.errors import InputError
from ham.core.install import install
from ham.core.text import visible

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def matplotlib() -> Any:
    """The library; it would obey a `matplotlibrc` in the current folder, which may be a stranger's."""
    try:
        if "matplotlib" not in sys.modules:
            with chdir(Path(__file__).parent):
                import matplotlib
        import matplotlib
    except ImportError:
        raise InputError(f"plots need matplotlib: {install('view')}") from None
    except ValueError as error:  # a setting of its own in the environment
        raise InputError(f"matplotlib does not start: {error}") from None
    return matplotlib


def blank(width: float, height: float) -> Figure:
    """A figure without pyplot: it chooses no backend, opens no window, and shows itself in a notebook."""
    matplotlib()
    from matplotlib.figure import Figure

    class Shown(Figure):
        def _repr_png_(self) -> bytes:
            return drawn(self, "png")

    return Shown(figsize=(width, height), layout="constrained")


def label(name: object) -> str:
    r"""A name as matplotlib shows it as it is: dollars begin no formula, and `_` hides nothing.

    >>> label("a$b"), label("_x")
    ('a\\$b', ' _x')
    """
    shown = visible(name).replace("$", r"\$")
    return f" {shown}" if shown.startswith("_") else shown


def drawn(figure: Figure, kind: str, **more: Any) -> bytes:
    """A figure as the bytes of a file."""
    data = BytesIO()
    figure.savefig(data, format=kind, **more)
    return data.getvalue()
