"""The native engine as the table sees it: which calls it serves, and why not.

Single accesses are here, since every microsecond of theirs counts; the other operations are in `operations`.
"""

from __future__ import annotations

from itertools import chain
from operator import is_
from typing import Any
from weakref import WeakKeyDictionary

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
        self._found_whole: WeakKeyDictionary[nn.Module, _Snapshot] = WeakKeyDictionary()

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
            return accesses.attend(tree, query, uniforms, self._parameters(search))
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
        try:
            networks = self._parameters(write) + self._parameters(join)
            form: Any = join
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
        return self._why_not(search, AN_MLP)

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
        return self._why_not(write, WRITE) or self._why_not(join, JOIN) or self._why_not_together(write, join)

    def _why_not(self, module: nn.Module, expected: tuple[str, ...]) -> str:
        """As `why_not_module`, but a module that was looked at before is only compared with what it was then."""
        if not torch.compiler.is_compiling():
            seen = self._found_whole.get(module)
            if seen is not None and seen.expected is expected and seen.holds():
                return ""
        why = why_not_module(module, *expected) or why_not_layers(module)
        if not why and not torch.compiler.is_compiling():
            self._found_whole[module] = _Snapshot(module, expected)
        return why

    def _why_not_together(self, write: Any, join: Any) -> str:
        """An update's networks are of one depth, their hidden layers of one width, their values on one grid."""
        if torch.compiler.is_compiling():
            widths = hidden_widths(write) | hidden_widths(join)
        else:
            widths = self._found_whole[write].widths | self._found_whole[join].widths
        if len(widths) > 1:
            return "WRITE and JOIN have hidden layers of different widths"
        return "" if write.grid == join.grid else "WRITE and JOIN round to different grids"

    def _parameters(self, module: nn.Module) -> list[Any]:
        """Of a module that was just looked at."""
        if torch.compiler.is_compiling():
            return list(module.parameters())
        return self._found_whole[module].parameters

    def _look_again(self, *modules: tuple[nn.Module, tuple[str, ...]]) -> None:
        """After a refusal: is it one of the parameters, which were not looked at again?"""
        for module, expected in modules:
            if why := why_not_module(module, *expected):
                self._found_whole.pop(module, None)
                raise NotServed(why) from None


class _Snapshot:
    """What a module was when it was found to compute just its class's equations; quick to compare with what it is."""

    def __init__(self, module: nn.Module, expected: tuple[str, ...]):
        self.expected = expected
        self.parameters = list(module.parameters())
        self.widths = hidden_widths(module)
        self.parts = parts = list(module.modules())
        self.classes = list(map(type, parts))
        self.attributes = [part.__dict__ for part in parts]
        self.counts = list(map(len, self.attributes))
        kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks", "_buffers")
        self.none_expected = [getattr(part, kind) for part in parts for kind in kinds]
        self.members: list[dict[str, Any]] = [
            of for part in parts for of in (part._modules, part._parameters) if of
        ]
        self.sizes = list(map(len, self.members))
        self.those = list(chain.from_iterable(map(dict.values, self.members)))

    def holds(self) -> bool:
        return (
            not any(self.none_expected)
            and not global_hooks._has_any_global_hook()
            and list(map(type, self.parts)) == self.classes
            and list(map(len, self.attributes)) == self.counts
            and list(map(len, self.members)) == self.sizes
            and all(map(is_, chain.from_iterable(map(dict.values, self.members)), self.those))
        )


NATIVE = NativeEngine()
