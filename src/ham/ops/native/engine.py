"""The native engine as the table sees it: which calls it serves, and why not.

Single accesses are here, the other operations in `operations`. Whoever accesses a memory comes here once: from then
on, while nothing about it changes, `ham.ops.quick` has the way.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ham.ops import forms
from ham.ops.forms import why_not_module, why_not_tensor
from ham.ops.native import accesses, known, library
from ham.ops.native.networks import AN_MLP, JOIN, WRITE, hidden_widths, tensors_of, why_not_layers
from ham.ops.native.operations import OPERATIONS, is_plain, why_not_floats

EMPTY = "the batch is empty"
"""Why it does not serve an access of no example, which the reference does."""


class NativeEngine:
    """C++ for float32 on the CPU and the paper's networks."""

    name = "native"

    def why_absent(self) -> str:
        """Why it cannot be had; the first question may take the seconds of a build."""
        return library.why_not()

    def why_not(self, operation: str, *call: Any) -> str:
        """Why it does not serve a call; empty if it does."""
        if why := library.why_not() or forms.why_not_here():
            return why
        if operation == "attend":
            return self._why_not_attend(*call)
        return (
            self._why_not_update(*call) if operation == "update" else OPERATIONS[operation](*call).why_not()
        )

    def __getattr__(self, operation: str) -> Any:
        """What runs an operation."""
        if operation not in OPERATIONS:
            raise AttributeError(f"the native engine has no operation {operation!r}")
        return lambda *call: OPERATIONS[operation](*call).run()

    def attend(self, tree: Tensor, query: Tensor, uniforms: Tensor, search: nn.Module) -> Any:
        networks = tensors_of(search)
        read = accesses.attend(tree, query, uniforms, networks)
        if not torch.compiler.is_compiling():
            known.remember((search,), networks, query.shape[1])
        return read

    def update(
        self,
        tree: Tensor,
        leaf: Tensor,
        query: Tensor,
        active: Tensor | None,
        write: nn.Module,
        join: nn.Module,
        pull: float = 0.0,
    ) -> tuple[Tensor, None]:
        form: Any = join
        networks = tensors_of(write, join)
        tree = accesses.update(tree, leaf, query, active, networks, form.form, form.top, form.grid)
        if not torch.compiler.is_compiling():
            known.remember((write, join), networks, query.shape[1])
        return tree, None

    def _why_not_attend(self, tree: Tensor, query: Tensor, uniforms: Tensor, search: nn.Module) -> str:
        if not len(tree):
            return EMPTY
        if not (is_plain(tree) and is_plain(query) and is_plain(uniforms)) and (
            why := why_not_floats(tree=tree, query=query, uniforms=uniforms)
        ):
            return why
        return _why_not_networks((search, AN_MLP))

    def _why_not_update(
        self,
        tree: Tensor,
        leaf: Tensor,
        query: Tensor,
        active: Tensor | None,
        write: nn.Module,
        join: nn.Module,
        pull: float = 0.0,
    ) -> str:
        if pull:
            return "a pull on what JOIN makes is known in whole episodes alone"
        if not len(tree):
            return EMPTY
        if not (is_plain(tree) and is_plain(query) and is_plain(leaf, torch.int64)) and (
            why := why_not_floats(tree=tree, query=query) or why_not_tensor("leaf", leaf, torch.int64)
        ):
            return why
        if active is not None and (why := why_not_tensor("active", active, torch.bool)):
            return why
        return _why_not_networks((write, WRITE), (join, JOIN)) or _why_not_grids(write, join)


def _why_not_networks(*expected: tuple[nn.Module, tuple[str, ...]]) -> str:
    for module, forms_of_it in expected:
        if why := why_not_module(module, *forms_of_it) or why_not_layers(module):
            return why
    if len(set().union(*(hidden_widths(module) for module, _ in expected))) > 1:
        return "WRITE and JOIN have hidden layers of different widths"
    return ""


def _why_not_grids(write: Any, join: Any) -> str:
    return "" if write.grid == join.grid else "WRITE and JOIN round to different grids"


NATIVE = NativeEngine()
