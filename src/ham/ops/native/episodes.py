"""Whole episodes of LSTM+HAM and raw HAM by the C++ engine, as an operation of PyTorch with its gradient.

It computes what the models' forward passes define; README.md beside this folder has the derivation.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import c_int64
from functools import lru_cache
from math import isfinite
from typing import Any, NamedTuple, TypedDict, Unpack, get_args

import torch
from torch import Tensor

from ham.core.errors import InputError
from ham.core.tree import depth_of
from ham.ops.episode import LEAST_ENTROPY, Entropy
from ham.ops.native.layout import (
    LARGEST,
    Sizes,
    aligned,
    check,
    check_finite,
    check_parameters,
    check_range,
    lstm_ham_shapes,
    lstm_ham_sizes,
    needs_tape,
    pointer,
    pointers,
    raw_ham_shapes,
    raw_ham_sizes,
    sizes_of,
)
from ham.ops.native.library import buffer, loaded, why_not
from ham.ops.native.structures import EpisodeCall

ENTROPIES = get_args(Entropy)
"""In the order of HamEntropy."""

Results = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor | None]


class EpisodeOptions(TypedDict, total=False):
    """What may be said of an episode beyond its data."""

    every: int
    """Timesteps of an output symbol, 1 by default."""
    soft: bool
    """Attend softly. Nothing is decided then: no uniforms, turns of depth 0, and the likeliest leaves."""
    pull: float
    """As `Join.pull`."""
    tree_clip: float
    """As `SoftHAM.tree_clip`."""
    exploration: float
    """As `SoftHAM.exploration`."""
    entropy: Entropy
    """As `SoftHAM.entropy`."""
    keep: bool
    """Give more than the outputs, which is the default."""
    final_tree: bool
    """Give the tree after the last timestep."""


def lstm_ham_episode(
    parameters: Sequence[Tensor],
    inputs: Tensor,
    lengths: Tensor,
    durations: Tensor,
    uniforms: Tensor | None,
    *,
    timesteps: int,
    **options: Unpack[EpisodeOptions],
) -> Results:
    """Run LSTM+HAM: inputs [batch, leaves, bits], uniforms [batch, timesteps, depth] or None: greedy.

    Gives outputs, turn logits, turns, leaves, queries and the final tree; what was not asked for
    is empty (time 0), the tree None. The parameters come in the order of the modules.
    """
    sizes = lstm_ham_sizes(parameters)
    if inputs.dim() != 3:
        raise InputError(f"inputs must be [batch, leaves, bits], got {tuple(inputs.shape)}")
    batch, leaves, _ = inputs.shape
    depth_of(leaves)
    check("inputs", inputs, (batch, leaves, sizes.bits))
    check("lengths", lengths, (batch,), torch.int64)
    return _run_episode(parameters, sizes, inputs, lengths, durations, uniforms, leaves, timesteps, **options)


def raw_ham_episode(
    parameters: Sequence[Tensor],
    inputs: Tensor,
    durations: Tensor,
    uniforms: Tensor | None,
    *,
    leaves: int,
    timesteps: int | None = None,
    **options: Unpack[EpisodeOptions],
) -> Results:
    """Run raw HAM: inputs [batch, time, bits] are the queries; the rest as in `lstm_ham_episode`."""
    sizes = raw_ham_sizes(parameters)
    if inputs.dim() != 3:
        raise InputError(f"inputs must be [batch, time, bits], got {tuple(inputs.shape)}")
    timesteps = inputs.shape[1] if timesteps is None else timesteps
    if timesteps > inputs.shape[1]:
        raise InputError(f"{timesteps} timesteps need as many inputs, got {inputs.shape[1]}")
    inputs = inputs[:, :timesteps]
    check("inputs", inputs, (len(inputs), timesteps, sizes.bits))
    return _run_episode(parameters, sizes, inputs, None, durations, uniforms, leaves, timesteps, **options)


def _run_episode(
    parameters: Sequence[Tensor],
    sizes: Sizes,
    inputs: Tensor,
    lengths: Tensor | None,
    durations: Tensor,
    uniforms: Tensor | None,
    leaves: int,
    timesteps: int,
    *,
    every: int = 1,
    soft: bool = False,
    pull: float = 0.0,
    tree_clip: float = 0.0,
    exploration: float = 0.0,
    entropy: Entropy = "inverse",
    keep: bool = True,
    final_tree: bool = False,
) -> Results:
    if why := why_not():
        raise InputError(f"the native engine cannot be had: {why}")
    batch, depth = len(inputs), depth_of(leaves)
    if batch < 1:
        raise InputError("a batch must have at least one example")
    if every < 1 or timesteps < 0:
        raise InputError(f"every must be at least 1 and timesteps at least 0, got {every} and {timesteps}")
    if max(leaves, timesteps, every) > LARGEST:
        raise InputError(
            f"leaves, timesteps and every must be at most {LARGEST:,}, got {leaves}, {timesteps}, {every}"
        )
    check("durations", durations, (batch,), torch.int64)
    if soft and uniforms is not None:
        raise InputError("soft attention decides nothing: uniforms must be None")
    for name, value in (("tree_clip", tree_clip), ("exploration", exploration)):
        if value and not soft:
            raise InputError(f"{name} is for soft attention, got {value} without it")
        if not (isfinite(value) and value >= 0):
            raise InputError(f"{name} must be finite and not negative, got {value}")
    if soft and leaves * timesteps > LARGEST:
        raise InputError(
            f"soft attention visits all leaves: leaves times timesteps must be at most {LARGEST:,}, "
            f"got {leaves} and {timesteps}"
        )
    if uniforms is not None:
        if uniforms.dim() == 3 and uniforms.shape[1] > timesteps:
            uniforms = uniforms[:, :timesteps]
        check("uniforms", uniforms, (batch, timesteps, depth))
    *results, tree, _tape = torch.ops.ham.episode.default(
        list(parameters), inputs.detach(), lengths, durations, None if uniforms is None else uniforms.detach(),
        leaves, timesteps, every, sizes.has_lstm, soft, pull, tree_clip, exploration, ENTROPIES.index(entropy),
        final_tree, keep, needs_tape(*parameters),
    )  # fmt: skip
    return (*results, tree if final_tree else None)


ARGUMENTS = (
    "Tensor[] parameters, Tensor inputs, Tensor? lengths, Tensor durations, Tensor? uniforms, "
    "int leaves, int timesteps, int every, bool has_lstm, bool soft, "
    "float pull, float tree_clip, float exploration, int entropy, bool final_tree"
)
"""What both directions need to know."""


class Given(NamedTuple):
    """The arguments that both directions have in common, in this order."""

    parameters: Sequence[Tensor]
    inputs: Tensor
    lengths: Tensor | None
    durations: Tensor
    uniforms: Tensor | None
    leaves: int
    timesteps: int
    every: int
    has_lstm: bool
    soft: bool
    pull: float
    tree_clip: float
    exploration: float
    entropy: int
    final_tree: bool

    @property
    def sizes(self) -> Sizes:
        return (lstm_ham_sizes if self.has_lstm else raw_ham_sizes)(self.parameters)

    @property
    def depth(self) -> int:
        return 0 if self.soft else depth_of(self.leaves)

    @property
    def longest_tape(self) -> int:
        """Floats of a tape in which every example runs to the end: a shape should not depend on values."""
        batch = len(self.inputs)
        whole = (self.sizes, batch, self.leaves, self.timesteps, self.every, self.soft, self.final_tree)
        return _longest_tape(*whole)

    def laid_out(self) -> Given:
        """The same with memory that the engine can walk through, every value checked."""
        inputs, durations = self.inputs.contiguous(), self.durations.contiguous()
        lengths = None if self.lengths is None else self.lengths.contiguous()
        uniforms = None if self.uniforms is None else self.uniforms.contiguous()
        check_finite("inputs", inputs)
        check_range("durations", durations, 0, self.timesteps)
        if lengths is not None:
            check_range("lengths", lengths, 0, self.leaves)
        if uniforms is not None:
            check_finite("uniforms", uniforms)
        parameters = [parameter.contiguous() for parameter in self.parameters]
        return self._replace(
            parameters=parameters, inputs=inputs, durations=durations, lengths=lengths, uniforms=uniforms
        )

    def call(self, *, taped: bool) -> tuple[EpisodeCall, Any]:
        """The structure for the engine; what it points to beside tensors must be held until the call is over."""
        sizes = self.sizes
        check_parameters(self.parameters, (lstm_ham_shapes if self.has_lstm else raw_ham_shapes)(sizes))
        addresses = pointers(self.parameters)
        call = EpisodeCall(
            batch=len(self.inputs), leaves=self.leaves, timesteps=self.timesteps, every=self.every,
            threads=torch.get_num_threads(), pull=self.pull, tree_clip=self.tree_clip,
            exploration=self.exploration, entropy=self.entropy, least_entropy=LEAST_ENTROPY, taped=taped,
            inputs=pointer(self.inputs), lengths=pointer(self.lengths), durations=pointer(self.durations),
            uniforms=pointer(self.uniforms), parameters=addresses, **sizes._asdict(),
        )  # fmt: skip
        return call, addresses


@lru_cache(maxsize=256)
def _longest_tape(
    sizes: Sizes, batch: int, leaves: int, timesteps: int, every: int, soft: bool, final_tree: bool
) -> int:
    durations = (c_int64 * batch)(*[timesteps] * batch)
    floats = 0
    # A single empty leaf makes every height of an empty subtree worth keeping.
    for filled in (leaves, leaves - 1) if sizes.has_lstm else (0,):
        lengths = (c_int64 * batch)(*[filled] * batch)
        call = EpisodeCall(
            batch=batch, leaves=leaves, timesteps=timesteps, every=every, threads=1, taped=True,
            durations=ctypes.addressof(durations), lengths=ctypes.addressof(lengths) if sizes.has_lstm else None,
            tree=ctypes.addressof(durations) if final_tree else None, **sizes._asdict(),
        )  # fmt: skip
        floats = max(floats, sizes_of(call, "soft" if soft else "episode")[0])
    return floats


def _forward(*arguments: Any) -> tuple[Tensor, ...]:
    *common, keep, taped = arguments
    given = Given(*common).laid_out()
    call, held = given.call(taped=taped)
    results = _results(given, keep)
    call.output_logits = pointer(results[0])
    if keep:
        call.turn_logits, call.turns, call.leaf, call.queries = map(pointer, results[1:5])
    # Its presence decides how many updates the tape holds.
    call.tree = pointer(results[5]) if given.final_tree else None
    name = "soft" if given.soft else "episode"
    of_tape, of_scratch, _ = sizes_of(call, name)
    tape, scratch = buffer(given.longest_tape if taped else 0), buffer(of_scratch)
    if taped and of_tape > tape.numel():
        raise RuntimeError(f"a tape of {of_tape} floats is longer than the longest, {tape.numel()}")
    call.tape, call.scratch = pointer(tape), pointer(scratch)
    getattr(loaded(), f"ham_{name}_forward")(ctypes.byref(call))
    del held
    return (*results, tape)


def _results(given: Given, keep: bool) -> tuple[Tensor, ...]:
    """Outputs, turn logits, turns, leaves, queries and the final tree; what is not asked for is empty."""
    sizes, batch, time = given.sizes, len(given.inputs), given.timesteps
    recorded = time if keep else 0

    def empty(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return given.inputs.new_empty(shape, dtype=dtype)

    return (
        empty(batch, time // given.every, sizes.outputs),
        empty(batch, recorded, given.depth),
        empty(batch, recorded, given.depth, dtype=torch.bool),
        empty(batch, recorded, dtype=torch.int64),
        empty(batch, recorded, sizes.query),
        empty(batch, 2 * given.leaves if given.final_tree else 0, sizes.width),
    )


def _backward(*arguments: Any) -> list[Tensor]:
    *common, tape, d_outputs, d_turn_logits = arguments
    given = Given(*common).laid_out()
    call, held = given.call(taped=True)
    name = "soft" if given.soft else "episode"
    # Only that there is one counts here.
    call.tree = pointer(given.parameters[0]) if given.final_tree else None
    tape = aligned(tape)
    check("what was saved for backward", tape, (given.longest_tape,))
    batch, sizes = len(given.inputs), given.sizes
    incoming = []
    for gradient, shape in (
        (d_outputs, (batch, given.timesteps // given.every, sizes.outputs)),
        (d_turn_logits, (batch, given.timesteps, given.depth)),
    ):
        if gradient is not None:
            check("a gradient", gradient, shape)
        incoming.append(None if gradient is None else gradient.contiguous())
    gradients = [torch.empty_like(parameter) for parameter in given.parameters]
    addresses, scratch = pointers(gradients), buffer(sizes_of(call, name)[2])
    call.d_output_logits, call.d_turn_logits = map(pointer, incoming)
    call.d_parameters, call.tape, call.scratch = addresses, pointer(tape), pointer(scratch)
    if getattr(loaded(), f"ham_{name}_backward")(ctypes.byref(call)):
        raise InputError("what was saved for backward has been changed")
    del held
    return gradients


def _setup(ctx: Any, inputs: tuple, output: tuple) -> None:
    parameters, *tensors = inputs[:5]
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(*output[2:])
    if not inputs[-2]:
        ctx.mark_non_differentiable(output[1])
    ctx.settings = inputs[5:-2]
    ctx.save_for_backward(output[-1], *tensors, *parameters)


def _gradient(ctx: Any, d_outputs: Tensor | None, d_turn_logits: Tensor | None, *_: Any) -> tuple:
    nothing = (None,) * 16
    if d_outputs is None and d_turn_logits is None:
        return None, *nothing
    tape, inputs, lengths, durations, uniforms, *parameters = ctx.saved_tensors
    common = (parameters, inputs, lengths, durations, uniforms, *ctx.settings)
    return torch.ops.ham.episode_backward.default(*common, tape, d_outputs, d_turn_logits), *nothing


_fragment: torch.library.Library | None = None


def register() -> None:
    """Make the episode an operation of PyTorch: with the shapes of what it gives, and its gradient."""
    global _fragment
    _fragment = fragment = torch.library.Library("ham", "FRAGMENT")
    fragment.define(
        f"episode({ARGUMENTS}, bool keep, bool taped) -> (Tensor outputs, Tensor turn_logits, Tensor turns, "
        f"Tensor leaves, Tensor queries, Tensor tree, Tensor tape)"
    )
    fragment.define(
        f"episode_backward({ARGUMENTS}, Tensor tape, Tensor? d_outputs, Tensor? d_turn_logits) -> Tensor[]"
    )
    fragment.impl("episode", _forward, "CPU")
    fragment.impl("episode_backward", _backward, "CPU")

    @torch.library.register_fake("ham::episode", lib=fragment)
    def _(*arguments):
        *common, keep, taped = arguments
        given = Given(*common)
        return (*_results(given, keep), given.inputs.new_empty(given.longest_tape if taped else 0))

    @torch.library.register_fake("ham::episode_backward", lib=fragment)
    def _(parameters, *_):
        return [torch.empty_like(parameter) for parameter in parameters]

    torch.library.register_autograd("ham::episode", _gradient, setup_context=_setup, lib=fragment)
