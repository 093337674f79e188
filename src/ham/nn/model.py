"""What every model answers to, HAM's and the baselines alike."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ham.nn.memory import Read
from ham.ops import Episode

if TYPE_CHECKING:
    from ham.ops import native, native_recurrent


class Start(NamedTuple):
    """What an LSTM controller starts from."""

    state: Float[Tensor, "batch cells"]
    cell: Float[Tensor, "batch cells"]


class Model(nn.Module, ABC):
    """A network that turns a batch of input rows into output symbols."""

    every: int = 1
    """Timesteps per output symbol (the paper's η)."""
    baseline: nn.Linear | None
    """The learned baseline: expected return from the query, for REINFORCE."""

    @abstractmethod
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
    ) -> Episode:
        """Run every example for as many output symbols as were `asked` of it.

        Without `uniforms` the run is greedy. `targets` are for models that are fed the symbol
        before while they train; HAM never sees them. `keep=False` records only the outputs, for
        long evaluations.
        """

    def engine_sizes(self) -> native.Sizes | native_recurrent.Sizes | None:
        """The widths of what the native engine trains; None for models that it does not know.

        Its parameters are all of the model's, in the order of its modules; a learned baseline's are last.
        """
        return None

    def engine_options(self) -> dict[str, Any]:
        """What the native engine has to know of this model beside its parameters."""
        return {}

    def decisions(self, leaves: int) -> int:
        """Decisions a timestep, which is the last dimension of `uniforms`."""
        return 0


class Recorder:
    """Collects what happens at each timestep of a reference run and stacks it into an `Episode`."""

    def __init__(self, durations: Int[Tensor, "batch"]):
        self.durations = durations
        self.reads: list[Read] = []
        self.queries: list[Tensor] = []
        self.outputs: list[Tensor] = []

    def episode(self, every: int, tree: Tensor | None) -> Episode:
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
        )
