"""Tensors in safetensors files, written to the same bytes and read without trust."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as tensors_from_bytes
from safetensors.torch import save as tensors_to_bytes
from torch import Tensor, nn

from ham.core.errors import InputError
from ham.core.files import read_bytes, read_json

LARGEST_FILE = 1 << 30
"""Bytes of the largest checkpoint or state that is read; the paper's models have some 40,000."""
LARGEST_HEADER = 1 << 20
"""Bytes of its header, which become some thirty times as many of memory; the paper's models have some 5,000."""


def to_bytes(tensors: Mapping[str, Tensor], header: dict[str, str]) -> bytes:
    """A safetensors file whose bytes depend on its content alone; the library shuffles its header."""
    data = tensors_to_bytes(dict(tensors), header)
    size = int.from_bytes(data[:8], "little")
    described = json.dumps(json.loads(data[8 : 8 + size]), sort_keys=True, separators=(",", ":")).encode()
    described += b" " * (-len(described) % 8)
    return len(described).to_bytes(8, "little") + described + data[8 + size :]


def plain(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights as they can be written: each with a storage of its own."""
    return {name: tensor.detach().clone().contiguous() for name, tensor in weights.items()}


def from_file(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors of a safetensors file, and what its header says besides."""
    data = read_bytes(path, LARGEST_FILE)
    size = int.from_bytes(data[:8], "little")
    if LARGEST_HEADER < size <= len(data):
        raise InputError(f"{path} has a header of {size:,} bytes; at most {LARGEST_HEADER:,} are read")
    try:
        tensors = tensors_from_bytes(data)
        text = data[8 : 8 + size].decode("utf-8")
    except (SafetensorError, ValueError, TypeError, KeyError, RuntimeError, OverflowError) as error:
        raise InputError(f"{path} is damaged or not a safetensors file: {error}") from None
    return tensors, read_json(text, f"the header of {path}").get("__metadata__") or {}


def check_weights(module: nn.Module, tensors: Mapping[str, Tensor], path: Path) -> None:
    """Refuse tensors that are not the weights of a module: by name, type, shape, and that each is finite."""
    expected = module.state_dict()
    for name in sorted(expected.keys() ^ tensors.keys()):
        has = "lacks" if name in expected else "has an unknown"
        raise InputError(f"{path} {has} tensor {name!r}")
    for name, tensor in expected.items():
        found = tensors[name]
        if found.shape != tensor.shape or found.dtype != tensor.dtype:
            raise InputError(
                f"{path}: {name} is {found.dtype} {tuple(found.shape)}, "
                f"should be {tensor.dtype} {tuple(tensor.shape)}"
            )
        if not torch.isfinite(found).all():
            raise InputError(f"{path}: {name} holds values that are not finite")
