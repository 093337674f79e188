"""What every model answers to, HAM's and the baselines alike."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ham.core.errors import InputError
from ham.models.memory import Read
from ham.ops import Episode
from ham.ops.episode import Networks
from ham.ops.reference import require, total


class Start(NamedTuple):
    """What an LSTM controller starts from."""

    state: Float[Tensor, "batch cells"]
    cell: Float[Tensor, "batch cells"]


class Beforehand(NamedTuple):
    """What was done to the leaves of a memory before the first timestep, range by range; nothing to those behind."""

    rows: Float[Tensor, "kinds operations features"]
    """The operations that a leaf of the range has seen."""
    done: Int[Tensor, "kinds"]
    """How many of them."""
    ends: Int[Tensor, "kinds"]
    """Where the ranges end, ascending."""

    def mirrored(self, leaves: int) -> Beforehand:
        """The same from the right: nothing was done to the first leaves, and the ranges come the other way round."""
        starts = torch.cat([self.ends.new_zeros(1), self.ends[:-1]])
        return Beforehand(
            torch.cat([torch.zeros_like(self.rows[:1]), self.rows.flip(0)]),
            torch.cat([self.done.new_zeros(1), self.done.flip(0)]),
            leaves - torch.cat([self.ends[-1:], starts.flip(0)]),
        )


class Questions(NamedTuple):
    """A batch as a model is asked it: the arguments of `Model.forward`, in which `symbols` is never left open."""

    inputs: Float[Tensor, "batch slots features"]
    lengths: Int[Tensor, "batch"]
    asked: Int[Tensor, "batch"]
    leaves: int
    uniforms: Float[Tensor, "batch time depth"] | None
    targets: Float[Tensor, "batch symbols bits"] | None
    keep: bool
    final_tree: bool
    symbols: int


class Model(nn.Module, ABC):
    """A network that turns a batch of input rows into output symbols."""

    every: int = 1
    """Timesteps per output symbol (the paper's η)."""
    baseline: nn.Linear | None
    """The learned baseline: expected return from the query, for REINFORCE."""

    def __repr__(self) -> str:
        numbers = sum(tensor.numel() for tensor in self.parameters())
        memory = f", {self.memory!r}" if hasattr(self, "memory") else ""
        return f"{type(self).__name__}({numbers:,} parameters{memory})"

    def forward(
        self,
        inputs: Float[Tensor, "batch slots features"],
        lengths: Int[Tensor, "batch"],
        asked: Int[Tensor, "batch"],
        *,
        leaves: int,
        uniforms: Float[Tensor, "batch time depth"] | None = None,
        targets: Float[Tensor, "batch symbols bits"] | None = None,
        keep: bool = True,
        final_tree: bool = False,
        symbols: int | None = None,
        **more: Any,
    ) -> Episode:
        """Run every example for as many output symbols as were `asked` of it.

        Without `uniforms` the run is greedy. `targets` are for models that are fed the symbol
        before while they train; HAM never sees them. `keep=False` records only the outputs, for
        long evaluations. `symbols` is how many there is room for, by default the most that were
        asked of anyone; a traced program, which must not depend on values, says it. What `more` there
        is to tell a model, its `episode` says.
        """
        room = room_for(asked, symbols)
        questions = Questions(inputs, lengths, asked, leaves, uniforms, targets, keep, final_tree, room)
        return self.episode(questions, **more)

    @abstractmethod
    def episode(self, questions: Questions) -> Episode:
        """What `forward` gives; a model's own way to it."""

    def networks(self) -> Networks | Sequence[nn.Module]:
        """The parts of a model that an engine may know as a whole, in the order of their parameters."""
        return ()

    def engine_options(self) -> dict[str, Any]:
        """What the native engine has to know of this model beside its parameters."""
        return {}

    def decisions(self, leaves: int) -> int:
        """Decisions a timestep, which is the last dimension of `uniforms`."""
        return 0


def room_for(asked: Int[Tensor, "batch"], symbols: int | None) -> int:
    """Output symbols of a batch: as many as are said, or as were asked of anyone, and at least one."""
    if not len(asked):
        raise InputError("a batch must have at least one example, got none")
    if symbols is None:
        return max(int(asked.max()), 1)
    if symbols < 1:
        raise InputError(f"symbols must be at least 1, got {symbols}")
    require((asked <= symbols).all(), lambda: f"asked for {int(asked.max())} symbols with room for {symbols}")
    return symbols


class Recorder:
    """Collects what happens at each timestep of a reference run and stacks it into an `Episode`."""

    def __init__(self, durations: Int[Tensor, "batch"]):
        self.durations = durations
        self.reads: list[Read] = []
        self.queries: list[Tensor] = []
        self.outputs: list[Tensor] = []

    def episode(self, every: int, tree: Tensor | None, pull: Tensor | None = None) -> Episode:
        time = torch.arange(len(self.reads), device=self.durations.device)
        ran = time < self.durations[:, None]
        gave = ran[:, every - 1 :: every]
        return Episode(
            outputs=torch.stack(self.outputs, 1) * gave[..., None],
            turn_logits=torch.stack([read.turn_logits for read in self.reads], 1) * ran[..., None],
            turns=torch.stack([read.turns for read in self.reads], 1) & ran[..., None],
            leaves=torch.stack([read.leaf for read in self.reads], 1).where(ran, -1),
            queries=torch.stack(self.queries, 1).detach() * ran[..., None],
            tree=tree,
            pull=pull,
            exploration=total(*(getattr(read, "exploration", None) for read in self.reads)),
        )
