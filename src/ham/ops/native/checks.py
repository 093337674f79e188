"""What is looked at before an address is passed on to the engine."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import c_int64, c_void_p

import torch
from torch import Tensor

from ham.core.errors import InputError
from ham.ops.native.library import loaded, why_not

LARGEST = 1 << 31
"""Beyond this the engine's products of sizes could leave 64 bits."""

Shapes = tuple[tuple[str, tuple[int, ...]], ...]
"""Names of tensors and their shapes."""


def require_engine() -> None:
    if why := why_not():
        raise InputError(f"the native engine cannot be had: {why}")


def pointer(tensor: Tensor | None) -> int | None:
    """The address of a tensor's numbers. An emptied storage, as sharding leaves them, still has a shape."""
    if tensor is None:
        return None
    if tensor.untyped_storage().nbytes() < tensor.element_size() * tensor.numel():
        raise InputError(f"a tensor of shape {tuple(tensor.shape)} has no storage")
    return tensor.data_ptr()


def check(name: str, tensor: Tensor, shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> None:
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name} must be a tensor, got {type(tensor).__name__}")
    if tensor.dtype != dtype:
        raise TypeError(f"{name} must be {dtype}, got {tensor.dtype}")
    if tensor.device.type != "cpu":
        raise InputError(f"{name} must be on the CPU, got {tensor.device}; use the reference backend")
    if tuple(tensor.shape) != shape:
        raise InputError(f"{name} must have shape {shape}, got {tuple(tensor.shape)}")


def check_dimensions(name: str, tensor: Tensor, *dimensions: str) -> None:
    """Nothing but a tensor with so many dimensions, which have these names."""
    if not isinstance(tensor, Tensor) or tensor.dim() != len(dimensions):
        raise InputError(f"{name} must be [{', '.join(dimensions)}], got {getattr(tensor, 'shape', tensor)}")


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


def check_ends(ends: Tensor, leaves: int) -> None:
    """Refuse ends of ranges of leaves that are not in ascending order."""
    if ends.numel():
        check_range("ends", ends, 0, leaves)
        if bool((ends.diff() < 0).any()):
            raise InputError(f"the ends of a stock must lie in 0 … {leaves} in ascending order")


def check_places(places: Tensor, leaves: int) -> None:
    """Refuse places that are not different leaves in ascending order."""
    if places.numel():
        check_range("places", places, 0, leaves - 1)
        if bool((places.diff() < 1).any()):
            raise InputError(f"places must be different leaves from 0 to {leaves - 1} in ascending order")
