"""The C++ engine seen from PyTorch: whole episodes, and single accesses for other controllers.

It computes what the reference defines, in float32 on the CPU. All checking of arguments happens
here, before any pointer is passed on; the derivation is in README.md beside this file.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from ctypes import c_int64, c_void_p
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, pairwise
from math import inf, isfinite, prod
from typing import NamedTuple, TypedDict, Unpack, get_args

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from ham.errors import InputError
from ham.ops import compiler, interface
from ham.ops.episode import LEAST_ENTROPY, Entropy
from ham.ops.interface import EpisodeCall, StepCall
from ham.tree import depth_of

ENTROPIES = get_args(Entropy)
"""In the order of HamEntropy."""
JOINS = ("rectified", "normalised", "highway")
"""In the order of HamJoin."""


@dataclass(frozen=True)
class Engine:
    """The loaded library and how it was built."""

    calls: ctypes.CDLL
    build: compiler.Build


_lock = threading.Lock()
_engine: Engine | None = None
_failure: str | None = None


def engine() -> Engine:
    """The engine, built on first use; a `compiler.BuildError` where it cannot be had."""
    global _engine, _failure
    with _lock:
        if _engine is None and _failure is None:
            try:
                _engine = _load()
            except compiler.BuildError as error:
                _failure = str(error)
        if _engine is None:
            raise compiler.BuildError(_failure)
        return _engine


def available() -> bool:
    """Whether the engine can be had; the first call may take the seconds of a build."""
    return not why_not()


def why_not() -> str:
    """One line on why the engine cannot be had, empty where it can."""
    try:
        engine()
    except compiler.BuildError as error:
        return str(error)
    return ""


def library() -> ctypes.CDLL:
    """The loaded library."""
    return engine().calls


def build_info() -> compiler.Build:
    """Compiler, flags, file and build time of the loaded library."""
    return engine().build


def _load() -> Engine:
    build = compiler.build()
    try:
        calls = ctypes.CDLL(str(build.file))
    except OSError as error:
        raise compiler.BuildError(f"the built engine does not load: {error}") from None
    if not interface.fits(calls):
        raise compiler.BuildError("the built engine and its binding disagree; reinstall the package")
    for name in ("first_not_finite", "range", "gradient", "sequence_gradient", "objective_floats"):
        getattr(calls, f"ham_{name}").restype = c_int64
    return Engine(calls, build)


# Tests set this: every workspace then starts as NaN, so nothing can be read before it is written.
fill_workspaces_with_nan = False


class Workspace:
    """A buffer from the pool, given back when the last user is gone.

    Fresh pages cost milliseconds a training step, so buffers live on; whoever holds one alone
    may write to it, which keeps episodes apart that are alive at the same time.
    """

    _free: dict[int, Tensor] = {}
    _kept = 6

    def __init__(self, floats: int):
        self.buffer: Tensor | None = None
        if fill_workspaces_with_nan:
            # Exactly as large as asked for, so that a sanitizer sees what reaches beyond it.
            self.buffer = torch.full((floats,), torch.nan)
        fitting = [item for item in list(self._free.items()) if item[1].numel() >= floats]
        for key, _ in sorted(fitting, key=lambda item: item[1].numel()):
            # Another thread may have been faster.
            if self.buffer is None:
                self.buffer = self._free.pop(key, None)
        if self.buffer is None:
            # Durations differ from batch to batch; some room to spare serves the next one too.
            self.buffer = torch.empty(floats + floats // 4)
            library().ham_use_huge_pages(c_void_p(self.buffer.data_ptr()), c_int64(self.buffer.nbytes))
        self.pointer, self.floats = self.buffer.data_ptr(), self.buffer.numel()

    def __del__(self):
        buffer, self.buffer = getattr(self, "buffer", None), None
        # A very large one is for a very large memory, and that is worth giving back.
        if buffer is None or buffer.numel() > 1 << 26 or fill_workspaces_with_nan:
            return
        while len(self._free) >= self._kept:
            smallest = min(list(self._free.items()), key=lambda item: item[1].numel(), default=None)
            if smallest is None or self._free.pop(smallest[0], None) is None:
                break
        self._free[id(buffer)] = buffer


def _saved(workspace: Workspace | None) -> Tensor:
    """A tensor for `save_for_backward` that holds a workspace.

    Autograd lets go of it right after backward, unless the graph is retained; a plain attribute
    of the context would keep the tape until the next step has made another one.
    """
    holder = torch.empty(0)
    holder.workspace = workspace  # type: ignore[attr-defined]
    return holder


def release_workspaces() -> None:
    """Give back the memory kept for the next training step."""
    Workspace._free.clear()


def _pointer(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


def _pointers(tensors: Sequence[Tensor]):
    return (c_void_p * len(tensors))(*[tensor.data_ptr() for tensor in tensors])


def check(name: str, tensor: Tensor, shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> None:
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name} must be a tensor, got {type(tensor).__name__}")
    if tensor.dtype != dtype:
        raise TypeError(f"{name} must be {dtype}, got {tensor.dtype}")
    if tensor.device.type != "cpu":
        raise InputError(f"{name} must be on the CPU, got {tensor.device}; use the reference backend")
    if tuple(tensor.shape) != shape:
        raise InputError(f"{name} must have shape {shape}, got {tuple(tensor.shape)}")


def check_laid_out(
    name: str, tensor: Tensor, shape: tuple[int, ...], dtype: torch.dtype = torch.float32
) -> None:
    """Nothing but a tensor that the engine can walk through from its first address on."""
    if not (
        isinstance(tensor, Tensor)
        and tensor.shape == shape
        and tensor.dtype == dtype
        and tensor.is_cpu
        and tensor.is_contiguous()
    ):
        check(name, tensor, shape, dtype)
        raise InputError(f"{name} must be contiguous; call .contiguous() on it")


def check_finite(name: str, tensor: Tensor) -> None:
    bad = library().ham_first_not_finite(c_void_p(tensor.data_ptr()), c_int64(tensor.numel()))
    if bad >= 0:
        raise InputError(f"{name} must be finite, got {tensor.view(-1)[bad].item()} at flat index {bad}")


def check_range(name: str, tensor: Tensor, low: int, high: int) -> None:
    bad = library().ham_range(
        c_void_p(tensor.data_ptr()), c_int64(tensor.numel()), c_int64(low), c_int64(high)
    )
    if bad >= 0:
        raise InputError(f"{name} must be between {low} and {high}, got {tensor.view(-1)[bad].item()}")


LARGEST = 1 << 31
"""Beyond this the engine's products of sizes could leave 64 bits."""


class Sizes(NamedTuple):
    """Widths of a model; `depth` 1 has no hidden layer."""

    bits: int
    width: int
    query: int
    hidden: int
    outputs: int
    depth: int
    has_lstm: bool
    highway: bool = False
    """Whether JOIN is a highway one, which has three networks instead of one."""

    def fields(self) -> dict[str, int]:
        """Those of an `EpisodeCall`."""
        return {name: value for name, value in self._asdict().items() if name != "highway"}


def _mlp(name: str, inputs: int, outputs: int, hidden: int, depth: int) -> list[tuple[str, tuple[int, ...]]]:
    widths = [inputs, hidden, outputs] if depth == 2 else [inputs, outputs]
    named: list[tuple[str, tuple[int, ...]]] = []
    for layer, (before, after) in enumerate(pairwise(widths), 1):
        named += [(f"{name} weight {layer}", (after, before)), (f"{name} bias {layer}", (after,))]
    return named


Shapes = tuple[tuple[str, tuple[int, ...]], ...]


def _join_shapes(width: int, hidden: int, depth: int, highway: bool) -> list[tuple[str, tuple[int, ...]]]:
    names = ["join candidate", "join gate", "join side"] if highway else ["join"]
    return [shape for name in names for shape in _mlp(name, 2 * width, width, hidden, depth)]


def _memory_shapes(s: Sizes) -> list[tuple[str, tuple[int, ...]]]:
    return [
        *_join_shapes(s.width, s.hidden, s.depth, s.highway),
        *_mlp("search", s.width + s.query, 1, s.hidden, s.depth),
        *_mlp("candidate", s.width + s.query, s.width, s.hidden, s.depth),
        *_mlp("gate", s.width + s.query, s.width, s.hidden, s.depth),
    ]


def lstm_ham_sizes(parameters: Sequence[Tensor]) -> Sizes:
    """The widths of an LSTM+HAM, read off its parameters, which are checked."""
    depth, highway = _depth_from(
        len(parameters), {16: (1, False), 26: (2, False), 20: (1, True), 34: (2, True)}, "LSTM+HAM"
    )
    gates, width = _matrix("lstm weight_ih", parameters[(14 if highway else 10) * depth])
    bits = _matrix("embed weight 1", parameters[0])[1]
    outputs = _matrix("output weight", parameters[-2])[0]
    hidden = parameters[0].shape[0] if depth == 2 else 0
    sizes = Sizes(bits, width, gates // 4, hidden, outputs, depth, True, highway)
    _check_parameters(parameters, _lstm_ham_shapes(sizes))
    return sizes


@cache
def _lstm_ham_shapes(s: Sizes) -> Shapes:
    return (
        *_mlp("embed", s.bits, s.width, s.hidden, s.depth),
        *_memory_shapes(s),
        ("lstm weight_ih", (4 * s.query, s.width)),
        ("lstm weight_hh", (4 * s.query, s.query)),
        ("lstm bias_ih", (4 * s.query,)),
        ("lstm bias_hh", (4 * s.query,)),
        ("output weight", (s.outputs, s.query)),
        ("output bias", (s.outputs,)),
    )


def raw_ham_sizes(parameters: Sequence[Tensor]) -> Sizes:
    """The widths of a raw HAM, read off its parameters, which are checked."""
    depth, highway = _depth_from(
        len(parameters), {10: (1, False), 20: (2, False), 14: (1, True), 28: (2, True)}, "raw HAM"
    )
    first, pair = _matrix("join weight 1", parameters[0])
    width = pair // 2
    query = _matrix("search weight 1", parameters[(6 if highway else 2) * depth])[1] - width
    outputs = _matrix("output weight", parameters[-2])[0]
    sizes = Sizes(query, width, query, first if depth == 2 else 0, outputs, depth, False, highway)
    _check_parameters(parameters, _raw_ham_shapes(sizes))
    return sizes


@cache
def _raw_ham_shapes(s: Sizes) -> Shapes:
    return (*_memory_shapes(s), *_mlp("output", s.width, s.outputs, s.hidden, s.depth))


def _depth_from(count: int, depths: dict[int, tuple[int, bool]], model: str) -> tuple[int, bool]:
    """How deep its networks are, and whether JOIN is a highway one."""
    if count not in depths:
        raise InputError(f"{model} has {' or '.join(map(str, depths))} parameter tensors, got {count}")
    return depths[count]


def _matrix(name: str, tensor: Tensor) -> tuple[int, int]:
    if not isinstance(tensor, Tensor) or tensor.dim() != 2:
        raise InputError(f"{name} must be a matrix, got {getattr(tensor, 'shape', tensor)}")
    return tensor.shape[0], tensor.shape[1]


def _check_parameters(parameters: Sequence[Tensor], shapes: Shapes) -> None:
    # The usual case in one pass; only what fails it is worth finding out about in detail.
    if all(
        isinstance(tensor, Tensor)
        and tensor.shape == shape
        and tensor.dtype == torch.float32
        and tensor.is_contiguous()
        and tensor.is_cpu
        for tensor, (_, shape) in zip(parameters, shapes, strict=True)
    ):
        return
    for tensor, (name, shape) in zip(parameters, shapes, strict=True):
        check(name, tensor, shape)
        if not tensor.is_contiguous():
            raise InputError(f"{name} must be contiguous; call .contiguous() on it")


@cache
def starts_of(sizes: Sizes) -> tuple[int, ...]:
    """Where each parameter starts in a vector of all of them; the last entry is its length."""
    shapes = _lstm_ham_shapes(sizes) if sizes.has_lstm else _raw_ham_shapes(sizes)
    return tuple(accumulate((prod(shape) for _, shape in shapes), initial=0))


def pointers_into(address: int, starts: tuple[int, ...]) -> ctypes.Array:
    """The addresses of the parameters in a vector of float32."""
    return (c_void_p * (len(starts) - 1))(*[address + 4 * start for start in starts[:-1]])


def padded(inputs: Tensor, leaves: int) -> Tensor:
    """One row for every leaf; as they are, uncopied, where there are as many."""
    missing = leaves - inputs.shape[1]
    return nn.functional.pad(inputs, (0, 0, 0, missing)) if missing else inputs


Results = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor | None]


class EpisodeOptions(TypedDict, total=False):
    """What may be said of an episode beyond its data."""

    every: int
    """Timesteps of an output symbol, 1 by default."""
    soft: bool
    """Attend softly. Nothing is decided then: no uniforms, turns of depth 0, and the likeliest leaves."""
    pull: float
    """As `Join.pull`."""
    tree_clip: float
    """As `SoftHAM.tree_clip`."""
    exploration: float
    """As `SoftHAM.exploration`."""
    entropy: Entropy
    """As `SoftHAM.entropy`."""
    join: str
    """The form of JOIN, as in `HAM`."""
    top: float
    """As in `HAM`."""
    grid: int
    """As in `HAM`."""
    cell_bound: float
    """As in `LSTMHAM`."""
    places: Tensor | None
    """LSTM+HAM: the leaf of each row of the input."""
    start: tuple[Tensor, Tensor] | None
    """LSTM+HAM: the controller's first state and cell."""
    keep: bool
    """Give more than the outputs, which is the default."""
    final_tree: bool
    """Give the tree after the last timestep."""


def lstm_ham_episode(
    parameters: Sequence[Tensor],
    inputs: Tensor,
    lengths: Tensor,
    durations: Tensor,
    uniforms: Tensor | None,
    *,
    timesteps: int,
    leaves: int | None = None,
    **options: Unpack[EpisodeOptions],
) -> Results:
    """Run LSTM+HAM: inputs [batch, rows, bits], uniforms [batch, timesteps, depth] or None: greedy.

    Gives outputs, turn logits, turns, leaves, queries and the final tree; what was not asked for
    is empty (time 0), the tree None. The parameters come in the order of the modules.
    """
    sizes = lstm_ham_sizes(parameters)
    if inputs.dim() != 3:
        raise InputError(f"inputs must be [batch, rows, bits], got {tuple(inputs.shape)}")
    batch, rows, _ = inputs.shape
    leaves = rows if leaves is None else leaves
    depth_of(leaves)
    check("inputs", inputs, (batch, rows, sizes.bits))
    check_rows(rows, leaves, options.get("places"))
    check("lengths", lengths, (batch,), torch.int64)
    lengths = lengths.clone()
    check_range("lengths", lengths, 0, rows)
    return _run_episode(parameters, sizes, inputs, lengths, durations, uniforms, leaves, timesteps, **options)


def check_rows(rows: int, leaves: int, places: Tensor | None) -> None:
    """Refuse more rows than leaves, and places that are not different leaves in ascending order."""
    if rows > leaves:
        raise InputError(f"{rows} items do not fit into a memory of {leaves} leaves")
    if places is None:
        return
    check_laid_out("places", places, (rows,), torch.int64)
    check_range("places", places, 0, leaves - 1)
    if bool((places[1:] <= places[:-1]).any()):
        raise InputError("places must be different leaves in ascending order")


def raw_ham_episode(
    parameters: Sequence[Tensor],
    inputs: Tensor,
    durations: Tensor,
    uniforms: Tensor | None,
    *,
    leaves: int,
    timesteps: int | None = None,
    **options: Unpack[EpisodeOptions],
) -> Results:
    """Run raw HAM: inputs [batch, time, bits] are the queries; the rest as in `lstm_ham_episode`."""
    sizes = raw_ham_sizes(parameters)
    if inputs.dim() != 3:
        raise InputError(f"inputs must be [batch, time, bits], got {tuple(inputs.shape)}")
    timesteps = inputs.shape[1] if timesteps is None else timesteps
    if timesteps > inputs.shape[1]:
        raise InputError(f"{timesteps} timesteps need as many inputs, got {inputs.shape[1]}")
    inputs = inputs[:, :timesteps]
    check("inputs", inputs, (len(inputs), timesteps, sizes.bits))
    return _run_episode(parameters, sizes, inputs, None, durations, uniforms, leaves, timesteps, **options)


def _run_episode(
    parameters: Sequence[Tensor],
    sizes: Sizes,
    inputs: Tensor,
    lengths: Tensor | None,
    durations: Tensor,
    uniforms: Tensor | None,
    leaves: int,
    timesteps: int,
    *,
    every: int = 1,
    soft: bool = False,
    pull: float = 0.0,
    tree_clip: float = 0.0,
    exploration: float = 0.0,
    entropy: Entropy = "inverse",
    join: str = "rectified",
    top: float = 0.0,
    grid: int = 0,
    cell_bound: float = 0.0,
    places: Tensor | None = None,
    start: tuple[Tensor, Tensor] | None = None,
    keep: bool = True,
    final_tree: bool = False,
) -> Results:
    batch, depth = len(inputs), depth_of(leaves)
    if batch < 1:
        raise InputError("a batch must have at least one example")
    if every < 1 or timesteps < 0:
        raise InputError(f"every must be at least 1 and timesteps at least 0, got {every} and {timesteps}")
    if max(leaves, timesteps, every) > LARGEST:
        raise InputError(
            f"leaves, timesteps and every must be at most {LARGEST:,}, got {leaves}, {timesteps}, {every}"
        )
    inputs = inputs.detach().contiguous()
    check_finite("inputs", inputs)
    check("durations", durations, (batch,), torch.int64)
    # Backward lays out the tape by these once more: nobody else may change them meanwhile.
    durations = durations.clone()
    check_range("durations", durations, 0, timesteps)
    if soft and uniforms is not None:
        raise InputError("soft attention decides nothing: uniforms must be None")
    for name, value in (("tree_clip", tree_clip), ("exploration", exploration)):
        if value and not soft:
            raise InputError(f"{name} is for soft attention, got {value} without it")
        if not (isfinite(value) and value >= 0):
            raise InputError(f"{name} must be finite and not negative, got {value}")
    if soft and leaves * timesteps > LARGEST:
        raise InputError(
            f"soft attention visits all leaves: leaves times timesteps must be at most {LARGEST:,}, "
            f"got {leaves} and {timesteps}"
        )
    if uniforms is not None:
        if uniforms.dim() == 3 and uniforms.shape[1] > timesteps:
            uniforms = uniforms[:, :timesteps]
        check("uniforms", uniforms, (batch, timesteps, depth))
        uniforms = uniforms.detach().contiguous()
        check_finite("uniforms", uniforms)

    check_bounds(sizes.highway, join, top, grid, cell_bound)
    if not sizes.has_lstm and (places is not None or start is not None):
        raise InputError("places and start are for LSTM+HAM")
    if start is not None:
        start = _checked_start(start, batch, sizes.query)
    if places is not None:
        places = places.clone()

    call = EpisodeCall(
        batch=batch, leaves=leaves, rows=inputs.shape[1], timesteps=timesteps, every=every,
        threads=torch.get_num_threads(), join=JOINS.index(join), top=top, grid=grid, cell_bound=cell_bound,
        places=_pointer(places), first_state=_pointer(start[0] if start else None),
        first_cell=_pointer(start[1] if start else None), pull=pull, tree_clip=tree_clip,
        exploration=exploration, entropy=ENTROPIES.index(entropy), least_entropy=LEAST_ENTROPY,
        inputs=_pointer(inputs), lengths=_pointer(lengths), durations=_pointer(durations),
        uniforms=_pointer(uniforms), **sizes.fields(),
    )  # fmt: skip
    held = (inputs, lengths, durations, uniforms, places, start)
    if _needs_tape(*parameters):
        return _EpisodeFunction.apply(call, held, soft, keep, final_tree, *parameters)
    return _forward(call, soft, keep, final_tree, parameters)[0]


def check_bounds(highway: bool, join: str, top: float, grid: int, cell_bound: float) -> None:
    if join not in JOINS:
        raise InputError(f"join must be one of {', '.join(JOINS)}, got {join!r}")
    if highway != (join == "highway"):
        raise InputError(
            f"the parameters are {'' if highway else 'not '}a highway JOIN's, but join is {join!r}"
        )
    if top != 0 and not 1 <= top < inf:
        raise InputError(f"top must be 0 or at least 1, got {top}")
    if not 0 <= grid <= 1 << 20 or grid & (grid - 1):
        raise InputError(f"grid must be 0 or a power of two up to {1 << 20:,}, got {grid}")
    if not (isfinite(cell_bound) and cell_bound >= 0):
        raise InputError(f"cell_bound must be finite and not negative, got {cell_bound}")


def _checked_start(start: tuple[Tensor, Tensor], batch: int, cells: int) -> tuple[Tensor, Tensor]:
    state, cell = (part.detach().contiguous() for part in start)
    for name, part in (("start state", state), ("start cell", cell)):
        check(name, part, (batch, cells))
        check_finite(name, part)
    return state, cell


def _operation(soft: bool, name: str):
    """What runs episodes, with hard or with soft attention: sizes, forward or backward."""
    return getattr(library(), f"ham_{'soft' if soft else 'episode'}_{name}")


def _forward(
    call: EpisodeCall, soft: bool, keep: bool, final_tree: bool, parameters: Sequence[Tensor]
) -> tuple[Results, Workspace | None]:
    batch, leaves, time = call.batch, call.leaves, call.timesteps
    recorded = time if keep else 0
    depth = 0 if soft else depth_of(leaves)
    results: Results = (
        torch.empty(batch, time // call.every, call.outputs),
        torch.empty(batch, recorded, depth),
        torch.empty(batch, recorded, depth, dtype=torch.bool),
        torch.empty(batch, recorded, dtype=torch.int64),
        torch.empty(batch, recorded, call.query),
        torch.empty(batch, 2 * leaves, call.width) if final_tree else None,
    )
    call.output_logits = results[0].data_ptr()
    if keep:
        call.turn_logits, call.turns, call.leaf, call.queries = (tensor.data_ptr() for tensor in results[1:5])
    call.tree = _pointer(results[5])
    pointers = _pointers(parameters)
    call.parameters = pointers
    sizes = (c_int64 * 3)()
    _operation(soft, "sizes")(ctypes.byref(call), sizes)
    tape = Workspace(sizes[0]) if call.taped else None
    call.tape = tape.pointer if tape else None
    scratch = Workspace(sizes[1])
    call.scratch = scratch.pointer
    _operation(soft, "forward")(ctypes.byref(call))
    return results, tape


class _EpisodeFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, call, held, soft, keep, final_tree, *parameters):
        call.taped = 1
        results, tape = _forward(call, soft, keep, final_tree, parameters)
        ctx.set_materialize_grads(False)
        ctx.call, ctx.held, ctx.soft = call, held, soft
        ctx.save_for_backward(_saved(tape), *parameters)
        ctx.mark_non_differentiable(*(tensor for tensor in results[2:] if tensor is not None))
        if not keep:
            ctx.mark_non_differentiable(results[1])
        return results

    @staticmethod
    @once_differentiable
    def backward(ctx, d_outputs, d_turn_logits, *_):
        _tape, *parameters = ctx.saved_tensors
        if d_outputs is None and d_turn_logits is None:
            return (None,) * (5 + len(parameters))
        call = ctx.call
        # The tree's presence decided how many updates the tape holds; its address is not used.
        d_outputs = d_outputs if d_outputs is None else d_outputs.contiguous()
        d_turn_logits = d_turn_logits if d_turn_logits is None else d_turn_logits.contiguous()
        call.d_output_logits, call.d_turn_logits = _pointer(d_outputs), _pointer(d_turn_logits)
        gradients = [torch.empty_like(parameter) for parameter in parameters]
        pointers, d_pointers = _pointers(parameters), _pointers(gradients)
        call.parameters, call.d_parameters = pointers, d_pointers
        call.threads = torch.get_num_threads()
        sizes = (c_int64 * 3)()
        _operation(ctx.soft, "sizes")(ctypes.byref(call), sizes)
        scratch = Workspace(sizes[2])
        call.scratch = scratch.pointer
        _operation(ctx.soft, "backward")(ctypes.byref(call))
        return None, None, None, None, None, *gradients


def attend(
    tree: Tensor, query: Tensor, uniforms: Tensor, search: nn.Module
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """One descent of every example; the same function as `reference.attend`."""
    parameters = list(search.parameters())
    call, depth = _step(tree, query, parameters, "search")
    check("uniforms", uniforms, (len(tree), depth))
    uniforms = uniforms.detach().contiguous()
    check_finite("uniforms", uniforms)
    call.uniforms = _pointer(uniforms)
    if _needs_tape(tree, query, *parameters):
        _, *read = _Attend.apply(tree, query, call, *parameters)
        return tuple(read)
    return _attend(call, tree, query, parameters, taped=False)[0]


def update(
    tree: Tensor, leaf: Tensor, query: Tensor, active: Tensor | None, write: nn.Module, join: nn.Module
) -> None:
    """One write and the joins above it, in place; the same function as `reference.update`."""
    parameters = [*write.parameters(), *join.parameters()]
    call, _ = _step(tree, query, parameters, "highway" if getattr(join, "form", "") == "highway" else "write")
    form = getattr(join, "form", "rectified")
    call.pull, call.join = getattr(join, "pull", 0.0), JOINS.index(form)
    call.top, call.grid = getattr(join, "top", 0.0), getattr(join, "grid", 0)
    check_bounds(form == "highway", form, call.top, int(call.grid), 0.0)
    check("leaf", leaf, (len(tree),), torch.int64)
    examples = None
    if active is not None:
        check("active", active, (len(tree),), torch.bool)
        examples = active.nonzero().squeeze(-1)
        call.count, call.examples = len(examples), _pointer(examples)
    leaf = leaf.contiguous()
    check_range("leaf", leaf if examples is None else leaf[examples], 0, call.leaves - 1)
    call.leaf = _pointer(leaf)
    if _needs_tape(tree, query, *parameters):
        _Update.apply(tree, query, call, (leaf, examples), *parameters)
    elif call.count:
        _update(call, tree, query, parameters, taped=False)


def _needs_tape(*tensors: Tensor) -> bool:
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


def _step(tree: Tensor, query: Tensor, parameters: Sequence[Tensor], network: str) -> tuple[StepCall, int]:
    if tree.dim() != 3 or query.dim() != 2:
        raise InputError(
            f"tree must be [batch, nodes, size] and query [batch, query], "
            f"got {tuple(tree.shape)} and {tuple(query.shape)}"
        )
    batch, nodes, width = tree.shape
    queries = query.shape[-1]
    check("tree", tree, (batch, nodes, width))
    check("query", query, (batch, queries))
    if batch < 1:
        raise InputError("a batch must have at least one example")
    if not tree.is_contiguous():
        raise InputError("tree must be contiguous; call .contiguous() on it")
    leaves = nodes // 2
    depth = depth_of(leaves)
    if nodes != 2 * leaves:
        raise InputError(f"tree must have 2 * leaves rows, got {nodes}")
    layers, _ = _depth_from(len(parameters), _STEP_DEPTHS[network], network)
    hidden = _matrix(f"{network} weight 1", parameters[0])[0] if layers == 2 else 0
    _check_parameters(parameters, _step_shapes(network, width, queries, hidden, layers))
    call = StepCall(
        count=batch, leaves=leaves, width=width, query=queries, hidden=hidden, depth=layers,
        threads=torch.get_num_threads(),
    )  # fmt: skip
    return call, depth


_STEP_DEPTHS = {
    "search": {2: (1, False), 4: (2, False)},
    "write": {6: (1, False), 12: (2, False)},
    "highway": {10: (1, True), 20: (2, True)},
}
"""By the number of parameters of an access: how deep its networks are."""


@cache
def _step_shapes(network: str, width: int, query: int, hidden: int, depth: int) -> Shapes:
    if network == "search":
        return tuple(_mlp("search", width + query, 1, hidden, depth))
    return (
        *_mlp("candidate", width + query, width, hidden, depth),
        *_mlp("gate", width + query, width, hidden, depth),
        *_join_shapes(width, hidden, depth, network == "highway"),
    )


def _prepare(
    call: StepCall, sizes_of, query: Tensor, parameters, taped: bool
) -> tuple[Workspace | None, tuple]:
    """Fills in what both accesses need; the second result must stay alive during the call."""
    query = query.detach().contiguous()
    check_finite("query", query)
    pointers = _pointers(parameters)
    call.queries, call.parameters = query.data_ptr(), pointers
    sizes = (c_int64 * 3)()
    sizes_of(ctypes.byref(call), sizes)
    tape = Workspace(sizes[0]) if taped else None
    scratch = Workspace(sizes[1])
    call.tape, call.scratch = tape.pointer if tape else None, scratch.pointer
    return tape, (query, pointers, scratch)


def _attend(call: StepCall, tree: Tensor, query: Tensor, parameters, taped: bool):
    batch, depth = len(tree), depth_of(call.leaves)
    logits = torch.empty(batch, depth)
    turns = torch.empty(batch, depth, dtype=torch.bool)
    leaf = torch.empty(batch, dtype=torch.int64)
    value = torch.empty(batch, call.width)
    tape, held = _prepare(call, library().ham_attend_sizes, query, parameters, taped)
    call.tree, call.turn_logits, call.turns = tree.data_ptr(), logits.data_ptr(), turns.data_ptr()
    call.leaf, call.value = leaf.data_ptr(), value.data_ptr()
    library().ham_attend_forward(ctypes.byref(call))
    del held
    return (logits, turns, leaf, value), tape


def _update(call: StepCall, tree: Tensor, query: Tensor, parameters, taped: bool) -> Workspace | None:
    tape, held = _prepare(call, library().ham_update_sizes, query, parameters, taped)
    call.tree = tree.data_ptr()
    library().ham_update_forward(ctypes.byref(call))
    torch.autograd.graph.increment_version(tree)
    del held
    return tape


def _own(ctx, tree_gradient: Tensor) -> Tensor:
    """The gradient tree, if this chain of accesses made it and may change it; else a copy."""
    if getattr(tree_gradient, "chain", None) == ctx.chain and tree_gradient.is_contiguous():
        return tree_gradient
    copy = tree_gradient.clone(memory_format=torch.contiguous_format)
    copy.chain = ctx.chain  # type: ignore[attr-defined]
    return copy


def _step_backward(call: StepCall, sizes_of, run, tree_gradient: Tensor, parameters) -> tuple[Tensor, list]:
    d_query = torch.zeros(len(tree_gradient), call.query)
    gradients = [torch.empty_like(parameter) for parameter in parameters]
    pointers, d_pointers = _pointers(parameters), _pointers(gradients)
    call.parameters, call.d_parameters = pointers, d_pointers
    call.threads = torch.get_num_threads()
    sizes = (c_int64 * 3)()
    sizes_of(ctypes.byref(call), sizes)
    scratch = Workspace(sizes[2])
    call.scratch, call.d_tree, call.d_queries = scratch.pointer, tree_gradient.data_ptr(), d_query.data_ptr()
    run(ctypes.byref(call))
    return d_query, gradients


class _Attend(torch.autograd.Function):
    """The tree goes through unchanged, so that every access has one successor in the graph."""

    @staticmethod
    def forward(ctx, tree, query, call, *parameters):
        (logits, turns, leaf, value), tape = _attend(call, tree, query, parameters, taped=True)
        torch.autograd.graph.increment_version(tree)
        ctx.call, ctx.shape, ctx.chain = call, tree.shape, tree.data_ptr()
        ctx.set_materialize_grads(False)
        ctx.mark_dirty(tree)
        ctx.mark_non_differentiable(turns, leaf)
        ctx.save_for_backward(_saved(tape), *parameters)
        return tree, logits, turns, leaf, value

    @staticmethod
    @once_differentiable
    def backward(ctx, d_tree, d_logits, _turns, _leaf, d_value):
        _tape, *parameters = ctx.saved_tensors
        if d_tree is None and d_logits is None and d_value is None:
            return (None,) * (3 + len(parameters))
        d_tree = _own(ctx, torch.zeros(ctx.shape) if d_tree is None else d_tree)
        call = ctx.call
        d_logits = d_logits if d_logits is None else d_logits.contiguous()
        d_value = d_value if d_value is None else d_value.contiguous()
        call.d_turn_logits, call.d_value = _pointer(d_logits), _pointer(d_value)
        calls = library()
        d_query, gradients = _step_backward(
            call, calls.ham_attend_sizes, calls.ham_attend_backward, d_tree, parameters
        )
        return d_tree, d_query, None, *gradients


class _Update(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tree, query, call, held, *parameters):
        tape = _update(call, tree, query, parameters, taped=True) if call.count else None
        ctx.call, ctx.held, ctx.chain = call, held, tree.data_ptr()
        ctx.set_materialize_grads(False)
        ctx.mark_dirty(tree)
        ctx.save_for_backward(_saved(tape), *parameters)
        return tree

    @staticmethod
    @once_differentiable
    def backward(ctx, d_tree):
        _tape, *parameters = ctx.saved_tensors
        if d_tree is None or not ctx.call.count:
            return d_tree, *(None,) * (3 + len(parameters))
        d_tree = _own(ctx, d_tree)
        calls = library()
        d_query, gradients = _step_backward(
            ctx.call, calls.ham_update_sizes, calls.ham_update_backward, d_tree, parameters
        )
        return d_tree, d_query, None, None, *gradients
