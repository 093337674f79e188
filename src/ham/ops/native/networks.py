"""Which models and parts of models the engine knows, and their parameters by the names that it has for them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from torch import Tensor, nn

from ham.core.errors import InputError
from ham.ops import forms
from ham.ops.episode import Decoding, Networks
from ham.ops.forms import first_reason, why_not_module
from ham.ops.native.layout import Sizes
from ham.ops.native.training import SequenceSizes

AN_MLP = ("mlp",)
RECTIFIED = ("rectified mlp",)
JOIN = ("rectified join", "normalised join", "highway join")
WRITE = ("write",)


def named_parameters(networks: Networks | Decoding) -> dict[str, Tensor]:
    """The parameters of the parts, each called `part.name`. An `nn.LSTM` of one layer is a cell to the engine."""
    return {
        f"{part}.{name.removesuffix('_l0')}": parameter
        for part, module in zip(networks._fields, networks, strict=True)
        if module is not None and part != "memory"
        for name, parameter in cast(nn.Module, module).named_parameters()
    }


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
    why = why or first_reason(why_not_layers(module) for module, _ in expected)
    return why or _why_not_bounds(networks) or _why_not_sizes(networks)


def _why_not_sizes(networks: Networks) -> str:
    try:
        Sizes.of(named_parameters(networks))
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


def tensors_of(*modules: nn.Module) -> list[Tensor]:
    """Weights and biases of SEARCH, or of WRITE and JOIN, in the order in which the engine takes them.

    That of their names, whenever they were registered; what is tied comes as often as it is used.
    """
    networks = [network for module in modules for network in _networks_in(module)]
    layers = [layer for network in networks for layer in network if isinstance(layer, nn.Linear)]
    return [tensor for layer in layers for tensor in (layer.weight, layer.bias)]


def _networks_in(module: Any) -> list[Any]:
    """An MLP itself, or those that WRITE and a highway JOIN are made of: candidate, gate, side."""
    if isinstance(module, nn.Sequential):
        return [module]
    return [getattr(module, name) for name in sorted(module._modules)]


def why_not_layers(module: nn.Module) -> str:
    """An MLP of the paper's has one or two layers with ReLU between them."""
    for part in module.modules():
        if isinstance(part, nn.Sequential):
            if list(part._modules) != [str(number) for number in range(len(part))]:
                return f"the layers of {type(part).__name__} are not numbered in their order"
            kinds = [type(layer) for layer in part]
            if kinds != [nn.Linear] and kinds != [nn.Linear, nn.ReLU, nn.Linear]:
                return f"{type(part).__name__} is not one linear layer, or two with a ReLU between them"
            if any(layer.bias is None for layer in part if isinstance(layer, nn.Linear)):
                return f"a layer of {type(part).__name__} has no bias"
    return ""


def why_not_lstms(modules: Iterable[nn.Module | None]) -> str:
    for module in modules:
        if isinstance(module, nn.LSTM) and (
            module.num_layers != 1 or module.proj_size or not module.batch_first or not module.bias
        ):
            return "the LSTM is not of one layer, batch first, with biases"
    return ""


def hidden_widths(module: nn.Module) -> set[int]:
    """Widths of the hidden layers in a module; 0 for a network that has none."""
    return {int(part[0].out_features) if len(part) > 1 else 0 for part in _networks_in(module)}


def sizes_of_model(model: Any) -> Sizes | SequenceSizes | None:
    """The widths of a model that is trained in one call; None for variants of it that are not."""
    if isinstance(networks := model.networks(), Networks):
        if forms.form_of(networks.memory) != "ham" or why_not_networks(networks):
            return None
        return Sizes.of(named_parameters(networks))
    if model.online:
        return None
    attentive = forms.form_of(model) == "lstm+a"
    return SequenceSizes(
        model.encoder.input_size, model.output.out_features, model.encoder.hidden_size, attentive
    )


def starts_of(model: Any) -> dict[str, int]:
    """Where each parameter starts in a vector of all of them, in the order of the module."""
    starts: dict[int, int] = {}
    end = 0
    for parameter in model.parameters():
        starts[id(parameter)] = end
        end += parameter.numel()
    if isinstance(networks := model.networks(), Networks):
        named = named_parameters(networks)
        named |= {f"baseline.{name}": parameter for name, parameter in model.baseline.named_parameters()}
    else:
        named = {**dict(model.encoder.named_parameters()), **named_parameters(model.decoding())}
    return {name: starts[id(parameter)] for name, parameter in named.items()}
