"""How the engine sees tensors: what is checked before an address is passed on, and the order of parameters."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import c_int64, c_void_p
from functools import cache
from itertools import accumulate, pairwise
from math import inf, isfinite, prod
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ham.core.errors import InputError
from ham.ops.episode import Stock
from ham.ops.native.library import loaded


def pointer(tensor: Tensor | None) -> int | None:
    """The address of a tensor's numbers. An emptied storage, as sharding leaves them, still has a shape."""
    if tensor is None:
        return None
    if tensor.untyped_storage().nbytes() < tensor.element_size() * tensor.numel():
        raise InputError(f"a tensor of shape {tuple(tensor.shape)} has no storage")
    return tensor.data_ptr()


def pointers(tensors: Sequence[Tensor]):
    return (c_void_p * len(tensors))(*map(pointer, tensors))


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
        and not tensor.is_neg()
        and tensor.data_ptr()
    ):
        check(name, tensor, shape, dtype)
        raise InputError(f"{name} must be contiguous and have storage; call .contiguous() on it")


def check_finite(name: str, tensor: Tensor) -> None:
    bad = loaded().ham_first_not_finite(c_void_p(tensor.data_ptr()), c_int64(tensor.numel()))
    if bad >= 0:
        raise InputError(f"{name} must be finite, got {tensor.view(-1)[bad].item()} at flat index {bad}")


def check_range(name: str, tensor: Tensor, low: int, high: int) -> None:
    bad = loaded().ham_range(
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


def mlp_shapes(
    name: str, inputs: int, outputs: int, hidden: int, depth: int
) -> list[tuple[str, tuple[int, ...]]]:
    widths = [inputs, hidden, outputs] if depth == 2 else [inputs, outputs]
    named: list[tuple[str, tuple[int, ...]]] = []
    for layer, (before, after) in enumerate(pairwise(widths), 1):
        named += [(f"{name} weight {layer}", (after, before)), (f"{name} bias {layer}", (after,))]
    return named


Shapes = tuple[tuple[str, tuple[int, ...]], ...]


def _join_shapes(width: int, hidden: int, depth: int, highway: bool) -> list[tuple[str, tuple[int, ...]]]:
    names = ["join candidate", "join gate", "join side"] if highway else ["join"]
    return [shape for name in names for shape in mlp_shapes(name, 2 * width, width, hidden, depth)]


def _memory_shapes(s: Sizes) -> list[tuple[str, tuple[int, ...]]]:
    return [
        *_join_shapes(s.width, s.hidden, s.depth, s.highway),
        *mlp_shapes("search", s.width + s.query, 1, s.hidden, s.depth),
        *mlp_shapes("candidate", s.width + s.query, s.width, s.hidden, s.depth),
        *mlp_shapes("gate", s.width + s.query, s.width, s.hidden, s.depth),
    ]


def lstm_ham_sizes(parameters: Sequence[Tensor]) -> Sizes:
    """The widths of an LSTM+HAM, read off its parameters, which are checked."""
    depth, highway = depth_from(
        len(parameters), {16: (1, False), 26: (2, False), 20: (1, True), 34: (2, True)}, "LSTM+HAM"
    )
    gates, width = matrix("lstm weight_ih", parameters[(14 if highway else 10) * depth])
    bits = matrix("embed weight 1", parameters[0])[1]
    outputs = matrix("output weight", parameters[-2])[0]
    hidden = parameters[0].shape[0] if depth == 2 else 0
    sizes = Sizes(bits, width, gates // 4, hidden, outputs, depth, True, highway)
    check_parameters(parameters, lstm_ham_shapes(sizes))
    return sizes


@cache
def lstm_ham_shapes(s: Sizes) -> Shapes:
    return (
        *mlp_shapes("embed", s.bits, s.width, s.hidden, s.depth),
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
    depth, highway = depth_from(
        len(parameters), {10: (1, False), 20: (2, False), 14: (1, True), 28: (2, True)}, "raw HAM"
    )
    first, pair = matrix("join weight 1", parameters[0])
    width = pair // 2
    query = matrix("search weight 1", parameters[(6 if highway else 2) * depth])[1] - width
    outputs = matrix("output weight", parameters[-2])[0]
    sizes = Sizes(query, width, query, first if depth == 2 else 0, outputs, depth, False, highway)
    check_parameters(parameters, raw_ham_shapes(sizes))
    return sizes


@cache
def raw_ham_shapes(s: Sizes) -> Shapes:
    return (*_memory_shapes(s), *mlp_shapes("output", s.width, s.outputs, s.hidden, s.depth))


def depth_from(count: int, depths: dict[int, tuple[int, bool]], model: str) -> tuple[int, bool]:
    """How deep its networks are, and whether JOIN is a highway one."""
    if count not in depths:
        raise InputError(f"{model} has {' or '.join(map(str, depths))} parameter tensors, got {count}")
    return depths[count]


def matrix(name: str, tensor: Tensor) -> tuple[int, int]:
    if not isinstance(tensor, Tensor) or tensor.dim() != 2:
        raise InputError(f"{name} must be a matrix, got {getattr(tensor, 'shape', tensor)}")
    return tensor.shape[0], tensor.shape[1]


def check_parameters(parameters: Sequence[Tensor], shapes: Shapes) -> None:
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
    shapes = lstm_ham_shapes(sizes) if sizes.has_lstm else raw_ham_shapes(sizes)
    return tuple(accumulate((prod(shape) for _, shape in shapes), initial=0))


def pointers_into(address: int, starts: tuple[int, ...]) -> ctypes.Array:
    """The addresses of the parameters in a vector of float32."""
    return (c_void_p * (len(starts) - 1))(*[address + 4 * start for start in starts[:-1]])


def padded(inputs: Tensor, leaves: int) -> Tensor:
    """One row for every leaf; as they are, uncopied, where there are as many."""
    missing = leaves - inputs.shape[1]
    return nn.functional.pad(inputs, (0, 0, 0, missing)) if missing else inputs


JOINS = ("rectified", "normalised", "highway")
"""In the order of HamJoin."""


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


def check_places(places: Tensor, leaves: int) -> None:
    """Refuse places that are not different leaves in ascending order."""
    if places.numel():
        check_range("places", places, 0, leaves - 1)
        if bool((places.diff() < 1).any()):
            raise InputError(f"places must be different leaves from 0 to {leaves - 1} in ascending order")


def needs_tape(*tensors: Tensor) -> bool:
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


def sizes_of(call: ctypes.Structure, name: str) -> tuple[int, int, int]:
    """Floats of a call's tape, of forward's scratch and of backward's."""
    sizes = (c_int64 * 3)()
    getattr(loaded(), f"ham_{name}_sizes")(ctypes.byref(call), sizes)
    return sizes[0], sizes[1], sizes[2]


def aligned(tape: Tensor) -> Tensor:
    """The engine loads vectors at multiples of their size; what hooks bring back may begin anywhere."""
    tape = tape.contiguous()
    return tape.clone() if tape.data_ptr() % 64 else tape


def check_stock(stock: Stock, width: int) -> None:
    """Refuse a stock whose values have another shape than its ends and the memory say."""
    check("stock", stock.values, (stock.ends.numel(), width))
    check("ends", stock.ends, (stock.ends.numel(),), torch.int64)


def check_ends(ends: Tensor, leaves: int) -> None:
    """Refuse ends of ranges of leaves that are not in ascending order."""
    if ends.numel():
        check_range("ends", ends, 0, leaves)
        if bool((ends.diff() < 0).any()):
            raise InputError(f"the ends of a stock must lie in 0 … {leaves} in ascending order")
