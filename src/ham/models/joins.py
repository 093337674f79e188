"""Every form of JOIN that a run can name. A new one is a class and a line here.

Nothing is imported before one is built, so that the command line can list them without torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from ham.core.places import chosen

if TYPE_CHECKING:
    from torch import nn

JOINS = {
    "rectified": "ham.models.transformations:RectifiedJoin",
    "normalised": "ham.models.transformations:NormalisedJoin",
    "highway": "ham.models.transformations:HighwayJoin",
}
"""`module:Class`: the paper's, one divided by its root mean square, one that copies up what it does not change."""

if TYPE_CHECKING:
    JoinForm = str
else:
    JoinForm = Literal[tuple(JOINS)]


def join_of(form: JoinForm, size: int, *, hidden: int, depth: int, top: float, grid: int) -> nn.Module:
    """JOIN in one of its forms, from two children side by side to their parent."""
    kind = chosen(JOINS, form, "JOIN")
    return kind(2 * size, size, hidden=hidden, depth=depth, top=top, grid=grid)
