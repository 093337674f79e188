"""What a module computes, as far as its class tells.

An engine that knows the equations of a class may run them by itself, but only while the module computes just
them: exactly this class, no hooks, no parametrisation, parameters that are plain tensors. These functions say
in one line what speaks against it; an empty line is leave to go on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn.modules import module as global_hooks

KNOWN: dict[type[nn.Module], str] = {
    nn.Linear: "linear",
    nn.ReLU: "relu",
    nn.LSTMCell: "lstm cell",
    nn.LSTM: "lstm",
}
"""The equations that a class stands for. A class of ours enters itself with `known_as`."""

F = TypeVar("F", bound=Callable)
PLAIN_TENSORS = (Tensor, nn.Parameter)


def constant(function: F) -> F:
    """Decorator: to who traces a program, what the function gives is a constant.

    As `torch.compiler.assume_constant_result`, which imports PyTorch's compiler: that takes as long as PyTorch.
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


def known_as(form: str):
    """Class decorator: engines may take modules of exactly this class for these equations."""

    def enter(kind):
        KNOWN[kind] = form
        return kind

    return enter


def form_of(module: nn.Module) -> str:
    """The equations of a module's class, or nothing; a class that inherits from a known one is unknown."""
    return KNOWN.get(type(module), "")


def why_not_module(module: nn.Module, *forms: str) -> str:
    """What speaks against taking a module for one of these forms."""
    if form_of(module) not in forms:
        return f"{type(module).__name__} is not {' or '.join(forms)}"
    if global_hooks._has_any_global_hook():
        return "there are hooks on all modules"
    for part in module.modules():
        if not form_of(part):
            return f"{type(module).__name__} has a part of class {type(part).__name__}"
        if part._forward_hooks or part._forward_pre_hooks or part._backward_hooks or part._backward_pre_hooks:
            return f"{type(part).__name__} has hooks"
        if part._buffers:
            return f"{type(part).__name__} has buffers"
        if "forward" in part.__dict__:
            return f"a {type(part).__name__} has a forward of its own"
        for name, parameter in part._parameters.items():
            if parameter is None:
                continue
            if why := why_not_tensor(name, parameter):
                return why
            if not parameter.is_contiguous():
                return f"{name} is not contiguous"
    return ""


def why_not_tensor(name: str, tensor: Tensor, dtype: torch.dtype = torch.float32) -> str:
    """What speaks against reading a tensor as dense numbers of the CPU."""
    if tensor.dtype != dtype:
        return f"{name} is {tensor.dtype}, not {dtype}"
    if tensor.device.type != "cpu":
        return f"{name} is on {tensor.device}, not on the CPU"
    if tensor.layout != torch.strided:
        return f"{name} has layout {tensor.layout}"
    if not torch.compiler.is_compiling() and type(tensor) not in PLAIN_TENSORS and not _is_fake(tensor):
        return f"{name} is a {type(tensor).__name__}, not a plain tensor"
    return ""


def why_not_here() -> str:
    """What speaks, in the surroundings of a call, against any engine that is not made of PyTorch's own parts."""
    if torch.is_autocast_enabled("cpu"):
        return "autocast is on"
    if torch.compiler.is_compiling():
        return ""
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return "it is inside a torch.func transform"
    if torch.autograd.forward_ad._current_level >= 0:
        return "forward-mode differentiation is on"
    return ""


def first_reason(reasons: Iterable[str]) -> str:
    """The first line that is not empty."""
    for reason in reasons:
        if reason:
            return reason
    return ""


def _is_fake(tensor: Tensor) -> bool:
    """Tensors that stand for plain ones while a program is traced."""
    from torch._subclasses import FakeTensor
    from torch._subclasses.functional_tensor import FunctionalTensor

    return isinstance(tensor, FakeTensor | FunctionalTensor)
