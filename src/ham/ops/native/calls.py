"""Calls that have a forward and a backward: their tapes, their scratch, and the parameters they expect."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from ctypes import c_int64, c_void_p
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from ham.core.errors import InputError
from ham.ops.forms import constant
from ham.ops.native.checks import Shapes, check, pointer
from ham.ops.native.library import buffer, loaded, structures


@constant
def expected_parameters(kind: str, **widths: int) -> Shapes:
    """Names and shapes of a call's parameters, in the order in which the engine takes them."""
    return _asked(kind, *widths.items())


@lru_cache(maxsize=256)
def _asked(kind: str, *widths: tuple[str, int]) -> Shapes:
    ask = getattr(loaded(), f"ham_{kind}_parameters")
    call = getattr(structures(), f"Ham{kind.capitalize()}")(**dict(widths))
    many = ask(ctypes.byref(call), None, c_int64(0))
    found = (structures().HamParameter * many)()
    ask(ctypes.byref(call), found, c_int64(many))
    named = []
    for each in found:
        name = ".".join(_text(part) for part in (each.network, each.tensor) if _text(part))
        named.append((name, (each.rows, each.columns) if each.columns else (each.rows,)))
    return tuple(named)


def _text(address: int) -> str:
    return ctypes.string_at(address).decode()


def in_order(parameters: Mapping[str, Tensor], shapes: Shapes, whose: str) -> list[Tensor]:
    """The parameters as the engine takes them; refused if one lacks, or nobody knows it."""
    names = [name for name, _ in shapes]
    for name in names:
        if name not in parameters:
            raise InputError(f"{whose} has a parameter {name}, which is missing")
    for name in parameters:
        if name not in names:
            raise InputError(f"{whose} has no parameter {name}")
    return [parameters[name] for name in names]


def matrix(parameters: Mapping[str, Tensor], name: str) -> tuple[int, int]:
    """The shape of a parameter that tells widths."""
    if name not in parameters:
        raise InputError(f"there must be a parameter {name}")
    tensor = parameters[name]
    if not isinstance(tensor, Tensor) or tensor.dim() != 2:
        raise InputError(f"{name} must be a matrix, got {getattr(tensor, 'shape', tensor)}")
    return tensor.shape[0], tensor.shape[1]


def needs_tape(*tensors: Tensor) -> bool:
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


def sizes_of(kind: str, call: Any) -> tuple[int, int, int]:
    """Floats of a call's tape, of forward's scratch and of backward's."""
    sizes = (c_int64 * 3)()
    getattr(loaded(), f"ham_{kind}_sizes")(ctypes.byref(call), sizes)
    return sizes[0], sizes[1], sizes[2]


def run_forward(kind: str, call: Any, parameters: Sequence[Tensor], longest_tape: int) -> Tensor:
    """Runs a call whose results have their addresses; gives its tape, which is empty if none was asked for.

    The tape is as long as the longest one of its shapes, which does not depend on values.
    """
    of_tape, of_scratch, _ = sizes_of(kind, call)
    if call.taped and of_tape > longest_tape:
        raise RuntimeError(f"a tape of {of_tape} floats is longer than the longest, {longest_tape}")
    tape, scratch = buffer(longest_tape if call.taped else 0), buffer(of_scratch)
    addresses = _addresses(parameters)
    call.parameters = ctypes.addressof(addresses)
    call.tape, call.scratch = pointer(tape), pointer(scratch)
    getattr(loaded(), f"ham_{kind}_forward")(ctypes.byref(call))
    return tape


def run_backward(
    kind: str, call: Any, parameters: Sequence[Tensor], tape: Tensor, longest_tape: int
) -> list[Tensor]:
    """Runs a call whose incoming gradients have their addresses; gives the parameters' gradients."""
    tape = tape.contiguous()
    check("what was saved for backward", tape, (longest_tape,))
    # The engine loads vectors at multiples of their size; what hooks bring back may begin anywhere.
    tape = tape.clone() if tape.data_ptr() % 64 else tape
    scratch = buffer(sizes_of(kind, call)[2])
    gradients = [torch.empty_like(parameter) for parameter in parameters]
    addresses, d_addresses = _addresses(parameters), _addresses(gradients)
    call.parameters, call.d_parameters = ctypes.addressof(addresses), ctypes.addressof(d_addresses)
    call.tape, call.scratch = pointer(tape), pointer(scratch)
    if getattr(loaded(), f"ham_{kind}_backward")(ctypes.byref(call)):
        raise InputError("what was saved for backward has been changed")
    return gradients


def _addresses(tensors: Sequence[Tensor]) -> ctypes.Array:
    return (c_void_p * len(tensors))(*map(pointer, tensors))
