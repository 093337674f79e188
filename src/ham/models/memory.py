"""HAM, the memory: a binary tree that is read and written along one path from root to leaf.

    state = memory.init(x, lengths)
    read = memory.attend(state, query)
    state = memory.update(state, read, query)

Any controller can drive it: whatever gives a query works. An access is Θ(log n), backward too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from ham.core.errors import InputError
from ham.core.tree import capacity_for, depth_of, turns_to
from ham.models.transformations import MLP, Join, JoinForm, Rectified, Write, join_of
from ham.ops import entropy_of, reference, run
from ham.ops.forms import known_as
from ham.ops.reference import require

# Goes right whatever the probability, and left whatever the probability.
SURELY_RIGHT, SURELY_LEFT = -1.0, 2.0


@dataclass
class State:
    """The memory's content. `update` reuses its storage, so a state is good until it is updated."""

    tree: Float[Tensor, "batch nodes size"]
    """Values by heap number: the root in row 1, leaf i of n in row n + i, row 0 unused."""
    spent: bool = field(default=False, repr=False)

    @property
    def leaves(self) -> int:
        return self.tree.shape[1] // 2

    def clone(self) -> State:
        """A copy that can be updated on its own."""
        return State(self.tree.clone())


@dataclass(frozen=True)
class Read:
    """One access: where it went, what it found, and how sure each decision was."""

    leaf: Int[Tensor, "batch"]
    value: Float[Tensor, "batch size"]
    turns: Bool[Tensor, "batch depth"]
    turn_logits: Float[Tensor, "batch depth"]
    log_probs: Float[Tensor, "batch depth"]
    """Of the turns taken."""

    @property
    def entropies(self) -> Float[Tensor, "batch depth"]:
        return entropy_of(self.turn_logits)


def _part(name: str) -> Any:
    """A module's part, found at once: PyTorch's own way to it takes longer than an access's search for a leaf."""

    def part(self: nn.Module) -> Any:
        try:
            return self._modules[name]
        except KeyError:
            raise AttributeError(f"{type(self).__name__} has no {name}") from None

    return property(part)


@known_as("ham")
class HAM(nn.Module):
    """Hierarchical Attentive Memory with its four transformations.

    Args:
        features: width of an input row (EMBED's input).
        query: width of the query that guides SEARCH and WRITE.
        size: width d of the value in every node.
        hidden: width of the hidden layers of the four networks.
        depth: their number of layers, 1 or 2.
        join: JOIN, in one of its forms, or any module from two children side by side, [..., 2 * size], to their
            parent, [..., size].
        top: ceiling of what EMBED and a rectified JOIN give; 0 is none.
        grid: if not 0, all values are rounded to multiples of 1/grid.
        embed: EMBED, any module from [..., features] to [..., size]; by default the paper's MLP, as for the others.
        search: SEARCH, from a node and the query, [..., size + query], to the logit of going right, [..., 1].
        write: WRITE, from a leaf [..., size] and the query [..., query] to the leaf's new value [..., size].
    """

    embed, join, search, write = map(_part, ("embed", "join", "search", "write"))

    def __init__(
        self,
        features: int,
        query: int,
        size: int = 20,
        *,
        hidden: int = 20,
        depth: int = 2,
        join: JoinForm | nn.Module = "rectified",
        top: float = 0.0,
        grid: int = 0,
        embed: nn.Module | None = None,
        search: nn.Module | None = None,
        write: nn.Module | None = None,
    ):
        super().__init__()
        self.size, self.query_size = size, query
        widths = {"hidden": hidden, "depth": depth}
        self.embed = Rectified(features, size, **widths, top=top, grid=grid) if embed is None else embed
        self.join = join if isinstance(join, nn.Module) else join_of(join, size, **widths, top=top, grid=grid)
        self.search = MLP(size + query, 1, **widths) if search is None else search
        self.write = Write(size, query, **widths, grid=grid) if write is None else write

    def episode_options(self) -> dict[str, Any]:
        """What the engine has to know of this memory beside its parameters."""
        join = self.join
        # Raw HAM has nothing to embed.
        ceiling = getattr(self, "embed", join)
        return {
            "pull": getattr(join, "pull", 0.0),
            "join": getattr(join, "form", "rectified"),
            "top": getattr(ceiling, "top", 0.0),
            "grid": getattr(join, "grid", 0),
        }

    def init(
        self,
        x: Float[Tensor, "batch items features"],
        lengths: Int[Tensor, "batch"] | None = None,
        leaves: int | None = None,
        places: Int[Tensor, "items"] | None = None,
    ) -> State:
        """A memory that holds EMBED(x) in its first leaves, or in those at `places`, and zeros in the others.

        `leaves` defaults to the smallest power of two that holds all the items. Places are different leaves in
        ascending order.
        """
        _require_no_trace()
        items = x.shape[1]
        leaves = (
            capacity_for(items if places is None else int(places.max()) + 1) if leaves is None else leaves
        )
        depth_of(leaves)
        check_places(places, items, leaves)
        if items > leaves:
            raise InputError(f"{items} items do not fit into a memory of {leaves} leaves")
        values = _fitting("embed", self.embed(x), (*x.shape[:2], self.size))
        if lengths is not None:
            if tuple(lengths.shape) != (len(x),):
                raise InputError(f"lengths must have shape ({len(x)},), got {tuple(lengths.shape)}")
            require(
                ((lengths >= 0) & (lengths <= items)).all(),
                lambda: f"lengths must lie in 0 … {items}, the rows of x, got {lengths.tolist()}",
            )
            used = torch.arange(items, device=x.device) < lengths[:, None]
            values = values * used[..., None]
        if places is None:
            values = nn.functional.pad(values, (0, 0, 0, leaves - items))
        else:
            values = values.new_zeros(len(x), leaves, self.size).index_copy(1, places, values)
        return State(reference.build(values, self.join))

    def empty(self, batch: int, leaves: int) -> State:
        """A memory whose leaves are all zeros."""
        _require_no_trace()
        depth_of(leaves)
        # All nodes of a level are equal, so one of each is joined.
        example = next(self.parameters(), torch.empty(0))
        value = example.new_zeros(batch, 1, self.size)
        levels = [value.expand(-1, leaves, -1)]
        while (width := levels[-1].shape[1]) > 1:
            # A penalty counts each of them.
            times = {"times": width // 2} if isinstance(self.join, Join) else {}
            value = self.join(torch.cat([value, value], -1), **times)
            levels.append(value.expand(-1, width // 2, -1))
        return State(torch.cat([torch.zeros_like(value), *reversed(levels)], 1))

    def attend(
        self,
        state: State,
        query: Float[Tensor, "batch query"],
        *,
        uniforms: Float[Tensor, "batch depth"] | None = None,
        leaf: Int[Tensor, "batch"] | None = None,
        greedy: bool | None = None,
        active: Bool[Tensor, "batch"] | None = None,
    ) -> Read:
        """Descend from the root to a leaf, guided by the query.

        Decisions are sampled in training mode and greedy in evaluation mode, unless `greedy`
        says otherwise; `uniforms` gives the random numbers to sample with; `leaf` forces the way.
        `active` says who takes part, which matters to `SoftHAM.exploration` alone.
        """
        self._check(state, query)
        if uniforms is None:
            uniforms = self._uniforms(state, leaf, not self.training if greedy is None else greedy)
        elif uniforms.shape != (shape := (state.tree.shape[0], depth_of(state.leaves))):
            raise InputError(f"uniforms must have shape {shape}, got {tuple(uniforms.shape)}")
        call = (state.tree, query, uniforms, self.search)
        logits, turns, leaf, value, log_probs = run("attend", reference.attend, *call)
        return Read(leaf, value, turns, logits, log_probs)

    def update(
        self,
        state: State,
        read: Read,
        query: Float[Tensor, "batch query"],
        *,
        active: Bool[Tensor, "batch"] | None = None,
    ) -> State:
        """Write to the leaf that was read and rejoin the nodes above it; `active` says who writes."""
        self._check(state, query)
        if active is not None and (active.dtype != torch.bool or active.shape != (len(query),)):
            raise InputError(
                f"active must be bool of shape ({len(query)},), got {active.dtype} {tuple(active.shape)}"
            )
        call = (state.tree, read.leaf, query, active, self.write, self.join)
        tree = run("update", reference.update, *call)
        state.spent = True
        return State(tree)

    def _check(self, state: State, query: Tensor) -> None:
        if state.spent:
            raise InputError(
                "this state was already updated; go on from what update() gave, or clone() before"
            )
        if query.shape != (shape := (state.tree.shape[0], self.query_size)):
            raise InputError(f"the query must have shape {tuple(shape)}, got {tuple(query.shape)}")

    def _uniforms(
        self, state: State, leaf: Int[Tensor, "batch"] | None, greedy: bool
    ) -> Float[Tensor, "batch depth"]:
        tree = state.tree
        if leaf is not None:
            return forced(leaf, state.leaves).to(tree.dtype)
        batch, nodes, _ = tree.shape
        shape = (batch, depth_of(nodes // 2))
        return (
            tree.new_full(shape, 0.5) if greedy else torch.rand(shape, dtype=tree.dtype, device=tree.device)
        )


def _require_no_trace() -> None:
    if torch.jit.is_tracing():
        raise InputError(
            "torch.jit.trace does not follow the memory's decisions; use torch.export or torch.compile"
        )


def _fitting(name: str, value: Tensor, shape: tuple[int, ...]) -> Tensor:
    """What a module of the user's gave, if it is what was asked of it."""
    if tuple(value.shape) != shape:
        raise InputError(f"{name} must give a tensor of shape {shape}, got {tuple(value.shape)}")
    return value


def forced(leaf: Int[Tensor, "*batch"], leaves: int) -> Float[Tensor, "*batch depth"]:
    """Uniforms that lead to the given leaves, whatever the probabilities are."""
    require(
        ((leaf >= 0) & (leaf < leaves)).all(),
        lambda: f"a leaf must be between 0 and {leaves - 1}, got {leaf.min()} … {leaf.max()}",
    )
    return torch.where(turns_to(leaf, leaves), SURELY_RIGHT, SURELY_LEFT)


def check_places(places: Int[Tensor, "items"] | None, items: int, leaves: int) -> None:
    """Refuse places that are not as many different leaves, in ascending order, as there are items."""
    if places is None:
        return
    if places.shape != (items,):
        raise InputError(f"places must have shape ({items},), got {tuple(places.shape)}")
    require(
        ((places >= 0) & (places < leaves)).all() & (places.diff() > 0).all(),
        lambda: f"places must be different leaves from 0 to {leaves - 1} in ascending order",
    )
