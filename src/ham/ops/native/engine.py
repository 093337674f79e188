"""The native engine as the table sees it: which calls it serves, and why not."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from operator import is_
from typing import Any, cast
from weakref import ReferenceType, ref

import torch
from torch import Tensor, nn
from torch.nn.modules import module as global_hooks

from ham.core.errors import InputError
from ham.ops import forms
from ham.ops.episode import Episode, Networks, Order
from ham.ops.forms import NotServed, first_reason, parameters_of, why_not_module, why_not_tensor
from ham.ops.native import accesses, episodes, layout, library, sequences, training

AN_MLP = ("mlp",)
RECTIFIED = ("rectified mlp",)
JOIN = ("rectified join", "normalised join", "highway join")
WRITE = ("write",)
TRAINED = ("lstm+ham", "raw-ham", "lstm", "lstm+a")


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
        return library.why_not() or forms.why_not_here() or getattr(self, "_why_not_" + operation)(*call)

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
    ) -> Tensor:
        form: Any = join
        try:
            networks = self._networks(write, join)
            return accesses.update(
                tree, leaf, query, active, networks, form.form, form.pull, form.top, form.grid
            )
        except Exception:
            self._look_again((write, WRITE), (join, JOIN))
            raise

    def _why_not_attend(self, tree: Tensor, query: Tensor, uniforms: Tensor, search: nn.Module) -> str:
        if not (_is_plain(tree) and _is_plain(query) and _is_plain(uniforms)) and (
            why := _why_not_floats(tree=tree, query=query, uniforms=uniforms)
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
    ) -> str:
        if not (_is_plain(tree) and _is_plain(query) and _is_plain(leaf, torch.int64)) and (
            why := _why_not_floats(tree=tree, query=query) or why_not_tensor("leaf", leaf, torch.int64)
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
            if why := why_not_module(module, *forms_of_it) or _why_not_layers(module):
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

    def episode(self, networks: Networks, order: Order, options: Mapping[str, Any]) -> Episode:
        settings = {"every": order.every, "keep": order.keep, "final_tree": order.final_tree, **options}
        parts = [part for part in networks[1:] if part is not None]
        uniforms = None if options.get("soft") else order.uniforms
        if networks.controller is None:
            return Episode(
                *episodes.raw_ham_episode(
                    parameters_of(*parts),
                    order.inputs,
                    order.durations,
                    uniforms,
                    leaves=order.leaves,
                    timesteps=order.timesteps,
                    **settings,
                )
            )
        assert order.lengths is not None
        return Episode(
            *episodes.lstm_ham_episode(
                parameters_of(*parts),
                order.inputs,
                order.lengths,
                order.durations,
                uniforms,
                timesteps=order.timesteps,
                leaves=order.leaves,
                places=order.places,
                start=order.start,
                **settings,
            )
        )

    def _why_not_episode(self, networks: Networks, order: Order, options: Mapping[str, Any]) -> str:
        if torch.is_grad_enabled() and order.inputs.requires_grad:
            return "the inputs ask for a gradient"
        state, cell = order.start or (None, None)
        if torch.is_grad_enabled() and any(part.requires_grad for part in order.start or ()):
            return "the first state asks for a gradient"
        floats = {"inputs": order.inputs, "uniforms": order.uniforms, "state": state, "cell": cell}
        return _why_not_floats(**floats) or why_not_networks(networks)

    def read_rows(self, encoder: nn.LSTM, rows: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return sequences.read(list(encoder.parameters()), rows, lengths)

    def _why_not_read_rows(self, encoder: nn.LSTM, rows: Tensor, lengths: Tensor) -> str:
        if torch.is_grad_enabled() and rows.requires_grad:
            return "the rows ask for a gradient"
        return _why_not_floats(rows=rows) or why_not_module(encoder, "lstm") or _why_not_lstm(encoder)

    def write_symbols(
        self,
        networks: Sequence[nn.Module],
        state: Tensor,
        cell: Tensor | None,
        asked: Tensor,
        targets: Tensor | None,
        symbols: int,
        memory: Tensor | None,
        lengths: Tensor | None,
    ) -> Tensor:
        return sequences.decode(
            parameters_of(*networks),
            state,
            cell,
            asked,
            targets,
            symbols=symbols,
            memory=memory,
            lengths=lengths,
        )

    def _why_not_write_symbols(
        self,
        networks: Sequence[nn.Module],
        state: Tensor,
        cell: Tensor | None,
        asked: Tensor,
        targets: Tensor | None,
        symbols: int,
        memory: Tensor | None,
        lengths: Tensor | None,
    ) -> str:
        if torch.is_grad_enabled() and targets is not None and targets.requires_grad:
            return "the targets ask for a gradient"
        expected = ("additive attention", "linear", "lstm cell", "lstm", "linear")
        return (
            _why_not_floats(state=state, cell=cell, targets=targets, memory=memory)
            or first_reason(why_not_module(network, *expected) for network in networks)
            or first_reason(_why_not_lstm(network) for network in networks)
        )

    def gradient(
        self, model: Any, weights: Tensor, gradient: Tensor, every: int, options: Any, pull: float
    ) -> training.Gradient | sequences.Gradient:
        """What computes the gradient of a whole training batch, for weights that are one vector."""
        sizes = sizes_of_model(model)
        if isinstance(sizes, sequences.Sizes):
            return sequences.Gradient(weights, gradient, sizes)
        assert sizes is not None
        bounds = {**model.engine_options(), "pull": pull}
        return training.Gradient(weights, gradient, sizes, every, training.Options(**options), **bounds)

    def _why_not_gradient(
        self, model: nn.Module, weights: Tensor, gradient: Tensor, every: int, options: Any, pull: float
    ) -> str:
        if why := _why_not_floats(weights=weights, gradient=gradient):
            return why
        if forms.form_of(model) not in TRAINED:
            return f"{type(model).__name__} is not one of the models that it trains in one call"
        if why := why_not_module(model, *TRAINED):
            return why
        try:
            sizes = sizes_of_model(model)
        except (InputError, TypeError) as error:
            return str(error)
        return "" if sizes else f"this {type(model).__name__} is trained by way of autograd"

    def cross_entropy(
        self, outputs: Tensor, targets: Tensor, counted: Tensor, asked: Tensor
    ) -> tuple[Tensor, float, float]:
        return training.cross_entropy(outputs, targets, counted, asked)

    def _why_not_cross_entropy(self, outputs: Tensor, targets: Tensor, counted: Tensor, asked: Tensor) -> str:
        return _why_not_floats(outputs=outputs, targets=targets)

    def adam(
        self, weights: Tensor, gradient: Tensor, mean: Tensor, square: Tensor, step: Mapping[str, Any]
    ) -> None:
        training.adam(weights, gradient, mean, square, **step)

    def _why_not_adam(
        self, weights: Tensor, gradient: Tensor, mean: Tensor, square: Tensor, step: Mapping[str, Any]
    ) -> str:
        return _why_not_floats(weights=weights, gradient=gradient, mean=mean, square=square)


def sizes_of_model(model: Any) -> layout.Sizes | sequences.Sizes | None:
    """The widths of a model that is trained in one call; None for variants of it that are not."""
    if isinstance(networks := model.networks(), Networks):
        if forms.form_of(networks.memory) != "ham" or why_not_networks(networks):
            return None
        parameters = parameters_of(*(part for part in networks[1:] if part is not None))
        return (layout.raw_ham_sizes if networks.controller is None else layout.lstm_ham_sizes)(parameters)
    if model.online:
        return None
    encoder, *_, output = networks
    attentive = forms.form_of(model) == "lstm+a"
    return sequences.Sizes(encoder.input_size, output.out_features, encoder.hidden_size, attentive)


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


def why_not_networks(networks: Networks) -> str:
    """Why the engine does not know a model with these parts."""
    form = forms.form_of(networks.memory)
    if form not in ("ham", "soft ham"):
        return f"{type(networks.memory).__name__} is not HAM or SoftHAM"
    expected = [
        (networks.join, JOIN),
        (networks.search, AN_MLP),
        (networks.write, WRITE),
        (networks.output, AN_MLP if networks.controller is None else ("linear",)),
    ]
    if networks.controller is not None:
        expected.append((networks.controller, ("lstm cell",)))
    if networks.embed is not None:
        expected.append((networks.embed, RECTIFIED))
    why = first_reason(why_not_module(module, *kinds) for module, kinds in expected)
    why = why or first_reason(_why_not_layers(module) for module, _ in expected)
    if why:
        return why
    if why := _why_not_bounds(networks):
        return why
    parameters = parameters_of(*(part for part in networks[1:] if part is not None))
    try:
        (layout.raw_ham_sizes if networks.controller is None else layout.lstm_ham_sizes)(parameters)
    except (InputError, TypeError) as error:
        return str(error)
    return ""


def _why_not_bounds(networks: Networks) -> str:
    """Values are on one grid, and have one ceiling."""
    embed, join, write = (cast(Any, part) for part in (networks.embed, networks.join, networks.write))
    if write.grid != join.grid or (embed is not None and embed.grid != join.grid):
        return "EMBED, JOIN and WRITE round to different grids"
    if embed is not None and join.form == "rectified" and embed.top != join.top:
        return "EMBED and JOIN have different ceilings"
    return ""


def _why_not_layers(module: nn.Module) -> str:
    """An MLP of the paper's has one or two layers with ReLU between them."""
    for part in module.modules():
        if isinstance(part, nn.Sequential):
            kinds = [type(layer) for layer in part]
            if kinds != [nn.Linear] and kinds != [nn.Linear, nn.ReLU, nn.Linear]:
                return f"{type(part).__name__} is not one linear layer, or two with a ReLU between them"
            if any(layer.bias is None for layer in part if isinstance(layer, nn.Linear)):
                return f"a layer of {type(part).__name__} has no bias"
    return ""


def tensors_of(*modules: nn.Module) -> list[Tensor]:
    """All their parameters in order, those that are tied to others as often as they are used."""
    return [tensor for module in modules for _, tensor in module.named_parameters(remove_duplicate=False)]


def hidden_widths(module: nn.Module) -> set[int]:
    """Widths of the hidden layers in a module; 0 for a network that has none."""
    networks: list[Any] = [part for part in module.modules() if isinstance(part, nn.Sequential)]
    return {int(part[0].out_features) if len(part) > 1 else 0 for part in networks}


def _why_not_grids(write: Any, join: Any) -> str:
    return "" if write.grid == join.grid else "WRITE and JOIN round to different grids"


def _why_not_lstm(module: nn.Module) -> str:
    if isinstance(module, nn.LSTM) and (
        module.num_layers != 1 or module.proj_size or not module.batch_first or not module.bias
    ):
        return "the LSTM is not of one layer, batch first, with biases"
    return ""


def _is_plain(tensor: Tensor, dtype: torch.dtype = torch.float32) -> bool:
    """The usual case at once; only what fails it is worth finding out about in detail."""
    return type(tensor) is Tensor and tensor.dtype is dtype and tensor.is_cpu


def _why_not_floats(**tensors: Tensor | None) -> str:
    for name, tensor in tensors.items():
        if tensor is not None and not _is_plain(tensor) and (why := why_not_tensor(name, tensor)):
            return why
    return ""


NATIVE = NativeEngine()
