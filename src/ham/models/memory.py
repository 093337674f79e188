"""HAM, the memory: a binary tree that is read and written along one path from root to leaf.

    state = memory.init(x, lengths)
    read = memory.attend(state, query)
    state = memory.update(state, read, query)

Any controller can drive it: whatever gives a query works. An access is Θ(log n), backward too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.compiler import is_compiling

from ham.core.errors import InputError
from ham.core.numbers import whole
from ham.core.rows import shortened
from ham.core.tree import capacity_for, depth_of, turns_to
from ham.models import hub
from ham.models.joins import JoinForm, join_of
from ham.models.transformations import MLP, Rectified, Write
from ham.ops import entropy_of, quick, reference, run
from ham.ops.episode import NO_PENALTIES, Penalties, Stock
from ham.ops.forms import form_of, known_as
from ham.ops.reference import require

# Goes right whatever the probability, and left whatever the probability.
SURELY_RIGHT, SURELY_LEFT = -1.0, 2.0

AnyHAM = TypeVar("AnyHAM", bound="HAM")


@dataclass(repr=False)
class State:
    """The memory's content. `update` reuses its storage, so a state is good until it is updated."""

    tree: Float[Tensor, "batch nodes size"]
    """Values by heap number: the root in row 1, leaf i of n in row n + i, row 0 unused."""
    pull: Float[Tensor, ""] | None = None
    """What the pull on all that JOIN has made so far costs, if there is one: a part of the loss."""
    spent: bool = False

    @property
    def leaves(self) -> int:
        """Size n of the memory."""
        return self.tree.shape[1] // 2

    def clone(self) -> State:
        """A copy that can be updated on its own."""
        self._require_unspent()
        return State(self.tree.clone(), self.pull)

    def detach(self) -> State:
        """The same content without its history: gradients end here, and what led to it is let go.

        Both have one storage, as with `torch.Tensor.detach`: only one of them is to be updated.
        """
        self._require_unspent()
        return State(self.tree.detach())

    def replaced(self, rows: Bool[Tensor, "batch"], by: State) -> State:
        """The same content, but in those rows of the batch that of another state; both states stay as they are.

        For episodes that ended: `state = state.replaced(done, memory.empty(batch, state.leaves))`.
        """
        self._require_unspent()
        by._require_unspent()
        if rows.dtype != torch.bool or rows.shape != (len(self.tree),):
            raise InputError(
                f"rows must be bool of shape ({len(self.tree)},), got {rows.dtype} {tuple(rows.shape)}"
            )
        if by.tree.shape != self.tree.shape:
            raise InputError(
                f"both states must have a tree of shape {tuple(self.tree.shape)}, got {tuple(by.tree.shape)}"
            )
        return replace(self, tree=torch.where(rows[:, None, None], by.tree, self.tree))

    def _require_unspent(self) -> None:
        if self.spent:
            raise InputError(
                "this state was already updated; go on from what update() gave, or clone() before"
            )

    def __repr__(self) -> str:
        batch, _, size = self.tree.shape
        spent = ", spent" if self.spent else ""
        return f"State(batch={batch}, leaves={self.leaves}, size={size}{spent})"


@dataclass(frozen=True, repr=False)
class Read:
    """One access: where it went, what it found, and how sure each decision was."""

    leaf: Int[Tensor, "batch"]
    """The leaf, counted from 0."""
    value: Float[Tensor, "batch size"]
    turns: Bool[Tensor, "batch depth"]
    """The decisions on the way; true is right."""
    turn_logits: Float[Tensor, "batch depth"]
    """SEARCH before its sigmoid at each of them."""
    log_probs: Float[Tensor, "batch depth"]
    """Log-probability of each decision that was taken; empty for a soft read."""

    @property
    def entropies(self) -> Float[Tensor, "batch depth"]:
        """Entropy of each decision, in nats; empty for a soft read."""
        return entropy_of(self.turn_logits)

    def __repr__(self) -> str:
        batch, size = self.value.shape
        leaf = shortened(self.leaf.tolist())
        return f"{type(self).__name__}(batch={batch}, size={size}, leaf={leaf})"


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
        modules = {"embed": embed, "join": join, "search": search, "write": write}
        self._given = tuple(name for name, module in modules.items() if isinstance(module, nn.Module))
        self.config: dict[str, Any] = {
            "features": features,
            "query": query,
            "size": size,
            "hidden": hidden,
            "depth": depth,
            **({} if isinstance(join, nn.Module) else {"join": join}),
            "top": top,
            "grid": grid,
        }
        widths = {"hidden": hidden, "depth": depth}
        self.embed = Rectified(features, size, **widths, top=top, grid=grid) if embed is None else embed
        self.join = join if isinstance(join, nn.Module) else join_of(join, size, **widths, top=top, grid=grid)
        self.search = MLP(size + query, 1, **widths) if search is None else search
        self.write = Write(size, query, **widths, grid=grid) if write is None else write

    @property
    def own(self) -> tuple[str, ...]:
        """Those of the four transformations that `config` does not make: given, put in later, or taken out."""
        join = f"{self.config.get('join')} join"
        made = {"embed": "rectified mlp", "join": join, "search": "mlp", "write": "write"}
        given = {name for name in made if name in self._given or not hasattr(self, name)}
        return tuple(
            name for name, form in made.items() if name in given or form_of(getattr(self, name)) != form
        )

    def save_pretrained(self, folder: str | Path, *, license: str | None = None) -> Path:
        """Write a folder that can be uploaded to the Hugging Face Hub as it is.

        It holds `config.json`, `model.safetensors` and a model card, `README.md`, with the licence if you name one.
        """
        return hub.save_memory(self, folder, license)

    @classmethod
    def from_pretrained(
        cls: type[AnyHAM],
        folder: str | Path,
        *,
        embed: nn.Module | None = None,
        join: nn.Module | None = None,
        search: nn.Module | None = None,
        write: nn.Module | None = None,
    ) -> AnyHAM:
        """The memory in a folder that `save_pretrained` wrote, or `huggingface_hub`'s mixin, in evaluation mode.

        Transformations of your own must be given, since only their weights are in the folder. HAM and SoftHAM have the
        same weights: either reads what the other wrote.
        """
        given = {"embed": embed, "join": join, "search": search, "write": write}
        return hub.load_memory(cls, folder, given)

    def __repr__(self) -> str:
        modules = {name: getattr(self, name) for name in self.own if hasattr(self, name)}
        settings = {**self.config, **{name: type(module).__name__ for name, module in modules.items()}}
        said = ", ".join(f"{name}={value}" for name, value in settings.items() if value)
        return f"{type(self).__name__}({said})"

    def episode_options(self) -> dict[str, Any]:
        """What the engine has to know of this memory beside its parameters."""
        join = self.join
        # Raw HAM has nothing to embed.
        ceiling = getattr(self, "embed", join)
        return {
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
        *,
        penalties: Penalties = NO_PENALTIES,
    ) -> State:
        """A memory that holds EMBED(x) in its first leaves, or in those at `places`, and zeros in the others.

        `leaves` defaults to the smallest power of two that holds all the items. Places are different leaves in
        ascending order.
        """
        _require_no_trace()
        items = x.shape[1]
        leaves = (
            capacity_for(items if places is None or not len(places) else int(places.max()) + 1)
            if leaves is None
            else whole("leaves", leaves)
        )
        depth_of(leaves)
        check_places(places, items, leaves)
        if items > leaves:
            raise InputError(f"{items} items do not fit into a memory of {leaves} leaves")
        if lengths is not None:
            if tuple(lengths.shape) != (len(x),):
                raise InputError(f"lengths must have shape ({len(x)},), got {tuple(lengths.shape)}")
            if lengths.is_floating_point() or lengths.dtype == torch.bool:
                raise InputError(f"lengths must be whole numbers, such as torch.int64, got {lengths.dtype}")
            require(
                ((lengths >= 0) & (lengths <= items)).all(),
                lambda: f"lengths must lie in 0 … {items}, the rows of x, got {lengths.tolist()}",
            )
            used = torch.arange(items, device=x.device) < lengths[:, None]
            # What lies beyond may be anything, NaN too, and reaches neither values nor gradients.
            x = torch.where(used[..., None], x, 0.0)
        values = _fitting("embed", self.embed(x), (*x.shape[:2], self.size))
        if lengths is not None:
            values = torch.where(used[..., None], values, 0.0)
        if places is None:
            values = nn.functional.pad(values, (0, 0, 0, leaves - items))
        else:
            values = values.new_zeros(len(x), leaves, self.size).index_copy(1, places, values)
        return State(*reference.build(values, self.join, penalties.pull))

    def empty(self, batch: int, leaves: int, *, penalties: Penalties = NO_PENALTIES) -> State:
        """A memory whose leaves are all zeros."""
        _require_no_trace()
        leaves = whole("leaves", leaves)
        depth_of(leaves)
        # All nodes of a level are equal, so one of each is joined.
        example = next(self.parameters(), torch.empty(0))
        value = example.new_zeros(batch, 1, self.size)
        levels, pull = [value.expand(-1, leaves, -1)], None
        while (width := levels[-1].shape[1]) > 1:
            # The pull counts each of them.
            value, cost = reference.pulled(
                self.join(torch.cat([value, value], -1)), penalties.pull * (width // 2)
            )
            pull = reference.total(pull, cost)
            levels.append(value.expand(-1, width // 2, -1))
        return State(torch.cat([torch.zeros_like(value), *reversed(levels)], 1), pull)

    def stocked(self, batch: int, leaves: int, stock: Stock, *, penalties: Penalties = NO_PENALTIES) -> State:
        """A memory whose first leaves hold what the stock says; the others are zeros."""
        require(
            ((stock.ends >= 0) & (stock.ends <= leaves)).all() & (stock.ends.diff() >= 0).all(),
            lambda: (
                f"the ends of a stock must lie in 0 … {leaves} in ascending order, got {stock.ends.tolist()}"
            ),
        )
        kinds = torch.searchsorted(stock.ends, torch.arange(leaves, device=stock.ends.device), right=True)
        values = torch.cat([stock.values, stock.values.new_zeros(1, self.size)])[kinds]
        return State(*reference.build(values.expand(batch, -1, -1), self.join, penalties.pull))

    def attend(
        self,
        state: State,
        query: Float[Tensor, "batch query"],
        *,
        uniforms: Float[Tensor, "batch depth"] | None = None,
        leaf: Int[Tensor, "batch"] | None = None,
        greedy: bool | None = None,
        active: Bool[Tensor, "batch"] | None = None,
        penalties: Penalties = NO_PENALTIES,
    ) -> Read:
        """Descend from the root to a leaf, guided by the query.

        Decisions are sampled in training mode and greedy in evaluation mode, unless `greedy`
        says otherwise; `uniforms` gives the random numbers to sample with; `leaf` forces the way.
        `active` says who takes part, which matters to the exploration of `SoftHAM` alone.
        """
        greedy = not self.training if greedy is None else greedy
        if leaf is None and penalties is NO_PENALTIES and not is_compiling():
            read = quick.attend(self._modules.get("search"), state, query, uniforms, greedy, Read)
            if read is not None:
                return read
        self._check(state, query)
        if penalties.of_soft:
            raise InputError(f"{penalties.of_soft} is for soft attention")
        if uniforms is None:
            uniforms = self._uniforms(state, leaf, greedy)
        elif leaf is not None:
            raise InputError("give the leaf or the uniforms that choose one, not both")
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
        penalties: Penalties = NO_PENALTIES,
    ) -> State:
        """Write to the leaf that was read and rejoin the nodes above it; `active` says who writes."""
        if penalties is NO_PENALTIES and not is_compiling():
            parts = self._modules
            fresh = quick.update(parts.get("write"), parts.get("join"), state, read, query, active, State)
            if fresh is not None:
                return fresh
        self._check(state, query)
        check_active(active, len(query))
        call = (state.tree, read.leaf, query, active, self.write, self.join, penalties.pull)
        tree, pull = run("update", reference.update, *call)
        state.spent = True
        return State(tree, reference.total(state.pull, pull))

    def _check(self, state: State, query: Tensor) -> None:
        state._require_unspent()
        if (nodes := state.tree.shape[1]) % 2:
            raise InputError(f"a tree has an even number of rows, the first of them unused; got {nodes}")
        if any(
            step == 0 and size > 1 for size, step in zip(state.tree.shape, state.tree.stride(), strict=True)
        ):
            raise InputError("examples of an expanded tree share their storage; call .contiguous() on it")
        if query.shape != (shape := (state.tree.shape[0], self.query_size)):
            raise InputError(f"the query must have shape {tuple(shape)}, got {tuple(query.shape)}")

    def _uniforms(
        self, state: State, leaf: Int[Tensor, "batch"] | None, greedy: bool
    ) -> Float[Tensor, "batch depth"]:
        tree = state.tree
        if leaf is not None:
            reference.require_one_leaf_each(leaf, tree)
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


def check_active(active: Tensor | None, batch: int) -> None:
    """Refuse what does not say of every example whether it takes part."""
    if active is not None and (active.dtype != torch.bool or active.shape != (batch,)):
        raise InputError(f"active must be bool of shape ({batch},), got {active.dtype} {tuple(active.shape)}")


def forced(leaf: Int[Tensor, "*batch"], leaves: int) -> Float[Tensor, "*batch depth"]:
    """Uniforms that lead to the given leaves, whatever the probabilities are."""
    if leaf.is_floating_point() or leaf.dtype == torch.bool:
        raise InputError(f"a leaf must be a whole number, such as torch.int64, got {leaf.dtype}")
    leaf = leaf.long()  # a narrower type may not hold the number of leaves
    require(
        ((leaf >= 0) & (leaf < leaves)).all(),
        lambda: f"a leaf must be between 0 and {leaves - 1}, got {leaf.min()} … {leaf.max()}",
    )
    return torch.where(turns_to(leaf, leaves), SURELY_RIGHT, SURELY_LEFT)


def check_places(places: Int[Tensor, "items"] | None, items: int, leaves: int) -> None:
    """Refuse places that are not as many different leaves, in ascending order, as there are items."""
    if places is None:
        return
    if places.dtype != torch.int64:
        raise InputError(f"places must be torch.int64, got {places.dtype}")
    if places.shape != (items,):
        raise InputError(f"places must have shape ({items},), got {tuple(places.shape)}")
    require(
        ((places >= 0) & (places < leaves)).all() & (places.diff() > 0).all(),
        lambda: f"places must be different leaves from 0 to {leaves - 1} in ascending order",
    )
