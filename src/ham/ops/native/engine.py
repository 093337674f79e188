"""The native engine as the table sees it: which calls it serves, and why not.

Single accesses are here, since every microsecond of theirs counts; the other operations are in `operations`.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from operator import is_
from typing import Any
from weakref import ReferenceType, ref

import torch
from torch import Tensor, nn
from torch.nn.modules import module as global_hooks

from ham.ops import forms
from ham.ops.forms import NotServed, why_not_module, why_not_tensor
from ham.ops.native import accesses, library
from ham.ops.native.networks import AN_MLP, JOIN, WRITE, hidden_widths, why_not_layers
from ham.ops.native.operations import OPERATIONS, is_plain, why_not_floats


class NativeEngine:
    """C++ for float32 on the CPU and the paper's networks."""

    name = "native"

    def __init__(self) -> None:
        self._known: dict[tuple[int, ...], _Known] = {}

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
        try:
            return accesses.attend(tree, query, uniforms, self._networks(search))
        except Exception:
            self._look_again((search, AN_MLP))
            raise

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
        try:
            networks = self._networks(write, join)
            tree = accesses.update(tree, leaf, query, active, networks, form.form, form.top, form.grid)
            return tree, None
        except Exception:
            self._look_again((write, WRITE), (join, JOIN))
            raise

    def _why_not_attend(self, tree: Tensor, query: Tensor, uniforms: Tensor, search: nn.Module) -> str:
        if not (is_plain(tree) and is_plain(query) and is_plain(uniforms)) and (
            why := why_not_floats(tree=tree, query=query, uniforms=uniforms)
        ):
            return why
        return self._why_not_networks((search,), (AN_MLP,))

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
        if not (is_plain(tree) and is_plain(query) and is_plain(leaf, torch.int64)) and (
            why := why_not_floats(tree=tree, query=query) or why_not_tensor("leaf", leaf, torch.int64)
        ):
            return why
        if active is not None and (why := why_not_tensor("active", active, torch.bool)):
            return why
        return self._why_not_networks((write, join), (WRITE, JOIN)) or _why_not_grids(write, join)

    def _why_not_networks(self, modules: tuple[nn.Module, ...], expected: tuple[tuple[str, ...], ...]) -> str:
        """As `why_not_module`, but modules that were looked at before are only compared with what they were then."""
        compiling = torch.compiler.is_compiling()
        if not compiling:
            known = self._known.get(tuple(map(id, modules)))
            if known is not None and known.holds(modules):
                return ""
        for module, forms_of_it in zip(modules, expected, strict=True):
            if why := why_not_module(module, *forms_of_it) or why_not_layers(module):
                return why
        if len(set().union(*map(hidden_widths, modules))) > 1:
            return "WRITE and JOIN have hidden layers of different widths"
        if not compiling:
            self._remember(modules)
        return ""

    def _remember(self, modules: tuple[nn.Module, ...]) -> None:
        key = tuple(map(id, modules))
        highway = forms.form_of(modules[-1]) == "highway join"
        networks = accesses.Networks(tensors_of(*modules), attends=len(modules) == 1, highway=highway)
        self._known[key] = _Known(modules, networks, lambda _: self._known.pop(key, None))

    def _networks(self, *modules: nn.Module) -> accesses.Networks | list[Tensor]:
        """Of modules that were just looked at."""
        if torch.compiler.is_compiling():
            return tensors_of(*modules)
        return self._known[tuple(map(id, modules))].networks

    def _look_again(self, *modules: tuple[nn.Module, tuple[str, ...]]) -> None:
        """After a refusal: is it one of the parameters, which were not looked at again?"""
        for module, expected in modules:
            if why := why_not_module(module, *expected):
                raise NotServed(why) from None


class _Known:
    """Modules that were found to compute just their classes' equations; quick to compare with what they are now.

    It keeps what they consist of, but not themselves: it goes when one of them does.
    """

    def __init__(
        self,
        modules: tuple[nn.Module, ...],
        networks: accesses.Networks,
        forget: Callable[[ReferenceType[nn.Module]], object],
    ):
        self.networks = networks
        self.alive = [ref(module, forget) for module in modules]
        parts = [part for module in modules for part in module.modules()]
        self.parts = [part for part in parts if part not in modules]
        self.classes = [*map(type, modules), *map(type, self.parts)]
        kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks", "_buffers")
        self.none_expected = [getattr(part, kind) for part in parts for kind in kinds]
        self.members: list[dict[str, Any]] = [
            of for part in parts for of in (part._modules, part._parameters) if of
        ]
        self.dictionaries = [part.__dict__ for part in parts] + self.members
        self.sizes = list(map(len, self.dictionaries))
        self.those = list(chain.from_iterable(map(dict.values, self.members)))

    def holds(self, modules: tuple[nn.Module, ...]) -> bool:
        return (
            not any(self.none_expected)
            and [*map(type, modules), *map(type, self.parts)] == self.classes
            and [*map(len, self.dictionaries)] == self.sizes
            and all(map(is_, chain.from_iterable(map(dict.values, self.members)), self.those))
            and not global_hooks._has_any_global_hook()
        )


def tensors_of(*modules: nn.Module) -> list[Tensor]:
    """All their parameters in order, those that are tied to others as often as they are used."""
    return [tensor for module in modules for _, tensor in module.named_parameters(remove_duplicate=False)]


def _why_not_grids(write: Any, join: Any) -> str:
    return "" if write.grid == join.grid else "WRITE and JOIN round to different grids"


NATIVE = NativeEngine()
