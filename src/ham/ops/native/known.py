"""Modules that were found to compute just their classes' equations, and the facts by which that is seen again.

csrc/quick.cpp compares them at every access: that takes about a microsecond.
"""

from __future__ import annotations

from typing import Any, NamedTuple
from weakref import ReferenceType, ref

from torch import Tensor, nn
from torch.nn.modules import module as global_hooks

from ham.ops import quick
from ham.ops.forms import form_of
from ham.ops.native.layout import JOINS

HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks", "_buffers")
GLOBAL_HOOKS = (
    *("_global_forward_hooks", "_global_forward_pre_hooks", "_global_backward_hooks"),
    *(
        "_global_backward_pre_hooks",
        "_global_forward_hooks_always_called",
        "_global_forward_hooks_with_kwargs",
    ),
)


class Facts(NamedTuple):
    """In the order in which `know` of csrc/quick.cpp reads them. What the modules consist of, but not they."""

    classes: tuple[type, ...]
    parts: tuple[nn.Module, ...]
    part_classes: tuple[type, ...]
    empty: tuple[dict[Any, Any], ...]
    """Dictionaries that have no entries."""
    dictionaries: tuple[tuple[dict[str, Any], tuple[dict[Any, Any] | None, ...]], ...]
    """Modules' own, that keep their entries; those of parameters and of hooks stay the same ones."""
    members: tuple[tuple[dict[str, Any], tuple[Any, ...]], ...]
    """Dictionaries that keep their values."""
    attributes: tuple[tuple[int, str, Any], ...]
    """Of the module with this number: what its attribute is."""
    tensors: tuple[Tensor, ...]
    """All parameters in order."""
    join: int
    top: float
    grid: float
    highway: bool
    query: int
    """Its width, which SEARCH alone does not tell from a value's."""
    alive: tuple[ReferenceType[nn.Module], ...]
    """They tell when a module goes."""


def remember(modules: tuple[nn.Module, ...], tensors: list[Tensor], query: int) -> None:
    """Let the next accesses with modules that were just looked over, SEARCH or WRITE and JOIN, be quick ones."""
    if any(type(tensor) is not nn.Parameter for tensor in tensors):
        return  # computed ones belong to a graph, which should not be kept alive
    key = (id(modules[0]), id(modules[1]) if len(modules) > 1 else 0)
    quick.know(*key, _facts(modules, tensors, query, lambda _: quick.forget(*key)))


def _facts(modules: tuple[nn.Module, ...], tensors: list[Tensor], query: int, forget: Any) -> Facts:
    all_parts = [part for module in modules for part in module.modules()]
    parts = tuple(part for part in all_parts if part not in modules)
    members = [of for part in all_parts for of in (part._modules, part._parameters) if of]
    join: Any = modules[-1]
    updates = len(modules) == 2
    attributes = [(1, name, getattr(join, name)) for name in ("form", "top", "grid")] if updates else []
    if updates:
        attributes.append((0, "grid", modules[0].grid))
    return Facts(
        classes=tuple(map(type, modules)),
        parts=parts,
        part_classes=tuple(map(type, parts)),
        empty=(
            *(getattr(part, kind) for part in all_parts for kind in HOOKS),
            *(getattr(global_hooks, name) for name in GLOBAL_HOOKS),
        ),
        dictionaries=tuple(
            (
                part.__dict__,
                tuple(value if isinstance(value, dict) else None for value in part.__dict__.values()),
            )
            for part in all_parts
        ),
        members=tuple((of, tuple(of.values())) for of in members),
        attributes=tuple(attributes),
        tensors=tuple(tensors),
        join=JOINS.index(join.form) if updates else 0,
        top=float(join.top) if updates else 0.0,
        grid=float(join.grid) if updates else 0.0,
        highway=form_of(join) == "highway join",
        query=query,
        alive=tuple(ref(module, forget) for module in modules),
    )
