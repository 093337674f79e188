"""The structures of csrc/api.h and csrc/objective.h, declared to ctypes."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_double, c_float, c_int64, c_void_p


def _fields(kind: type, names: str) -> list:
    return [(name, kind) for name in names.split()]


class EpisodeCall(ctypes.Structure):
    """HamEpisode."""

    _fields_ = [
        *_fields(c_int64, "batch leaves rows timesteps every bits width query hidden outputs depth"),
        *_fields(c_int64, "has_lstm taped threads join kinds entropy"),
        *_fields(c_float, "exploration least_entropy pull tree_clip top grid cell_bound"),
        *_fields(POINTER(c_void_p), "parameters"),
        *_fields(c_void_p, "inputs lengths places first_state first_cell stock stock_ends durations uniforms"),
        *_fields(c_void_p, "output_logits turn_logits turns leaf queries tree tape scratch"),
        *_fields(c_void_p, "d_output_logits d_turn_logits"),
        *_fields(POINTER(c_void_p), "d_parameters"),
    ]


class ObjectiveCall(ctypes.Structure):
    """HamObjective."""

    _fields_ = [
        *_fields(c_int64, "batch symbols bits timesteps levels query every runs"),
        *_fields(c_int64, "reward baseline normalise entropy"),
        *_fields(c_float, "discount reinforce exploration least_entropy least_square"),
        *_fields(c_void_p, "outputs targets counted durations turn_logits turns queries head"),
        *_fields(c_void_p, "d_outputs d_turn_logits d_head scratch terms"),
    ]


class GradientCall(ctypes.Structure):
    """HamGradient."""

    _fields_ = [
        *_fields(EpisodeCall, "episode"),
        *_fields(ObjectiveCall, "objective"),
        *_fields(c_void_p, "workspace"),
        *_fields(c_int64, "floats"),
        *_fields(c_void_p, "gradient"),
        *_fields(c_int64, "weights"),
        *_fields(c_double * 4, "terms"),
        *_fields(c_double, "norm"),
    ]


class AdamCall(ctypes.Structure):
    """HamAdam."""

    _fields_ = [
        *_fields(c_int64, "weights"),
        *_fields(c_void_p, "weight gradient mean square"),
        *_fields(c_float, "mean_rate square_rate square_decay epsilon scale rate unbiased_root"),
    ]


class ReaderCall(ctypes.Structure):
    """HamReader."""

    _fields_ = [
        *_fields(c_int64, "batch slots features cells directions taped threads"),
        *_fields(POINTER(c_void_p), "parameters"),
        *_fields(c_void_p, "rows lengths states last_state last_cell tape scratch"),
        *_fields(c_void_p, "d_states d_last_state d_last_cell"),
        *_fields(POINTER(c_void_p), "d_parameters"),
    ]


class DecoderCall(ctypes.Structure):
    """HamDecoder."""

    _fields_ = [
        *_fields(c_int64, "batch symbols bits cells directions items item width taped threads"),
        *_fields(POINTER(c_void_p), "parameters"),
        *_fields(c_void_p, "state cell asked targets memory lengths outputs tape scratch"),
        *_fields(c_void_p, "d_outputs d_state d_cell d_memory"),
        *_fields(POINTER(c_void_p), "d_parameters"),
    ]


class SequenceCall(ctypes.Structure):
    """HamSequence."""

    _fields_ = [
        *_fields(ReaderCall, "reader"),
        *_fields(DecoderCall, "decoder"),
        *_fields(ObjectiveCall, "objective"),
        *_fields(c_void_p, "workspace"),
        *_fields(c_int64, "floats"),
        *_fields(c_void_p, "gradient"),
        *_fields(c_int64, "weights"),
        *_fields(c_double * 4, "terms"),
        *_fields(c_double, "norm"),
    ]


CALLS = (
    *(EpisodeCall, ObjectiveCall, GradientCall, AdamCall),
    *(ReaderCall, DecoderCall, SequenceCall),
)


def fits(library: ctypes.CDLL) -> bool:
    """Whether the library was built from structures of these sizes."""
    sizes = (c_int64 * len(CALLS))()
    library.ham_layout(sizes)
    return list(sizes) == [ctypes.sizeof(call) for call in CALLS]
