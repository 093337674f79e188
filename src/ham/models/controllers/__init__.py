"""What drives a memory: every controller that a run can name.

A controller is a module with a state, a tuple of tensors [batch, …] whose first is the query, [batch, cells]:

    state = controller.first(read.value)           # before the first timestep
    state = controller(read.value, state)          # after each read

A new one is a file here and a line below. Nothing is imported before one is built, so that the command line can list
them without torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from ham.core.errors import InputError
from ham.core.places import chosen

if TYPE_CHECKING:
    from torch import nn

CONTROLLERS = {
    "lstm": "ham.models.controllers.lstm:LSTM",
    "gru": "ham.models.controllers.gru:GRU",
    "feed-forward": "ham.models.controllers.feed_forward:FeedForward",
}
"""`module:Class`, which is called with the width of what is read and the number of cells."""

if TYPE_CHECKING:
    ControllerName = str
else:
    ControllerName = Literal[tuple(CONTROLLERS)]


def controller_of(name: str, inputs: int, cells: int, *, bound: float = 0.0) -> nn.Module:
    """A controller with fresh weights; a bound is for those whose cells can be bounded."""
    kind = chosen(CONTROLLERS, name, "controller")
    require_bound_fits(name, bound)
    return kind(inputs, cells, **({"bound": bound} if bound else {}))


def require_bound_fits(name: str, bound: float) -> None:
    """Refuse a bound for a controller that has no cells to be bounded."""
    if bound and name != "lstm":
        raise InputError(f"cell_bound is for the lstm controller, not for {name}")
