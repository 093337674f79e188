"""The memory, the models that use it, and the paper's baselines: one contract, `Model`.

Everything is imported on first use, so that `kinds` can be read without torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

_HOMES = {
    "HAM": "memory",
    "LSTMHAM": "lstm_ham",
    "MLP": "transformations",
    "AttentiveDecoder": "attentive_decoder",
    "Beforehand": "model",
    "EncoderDecoder": "encoder_decoder",
    "Model": "model",
    "RawHAM": "raw_ham",
    "Read": "memory",
    "Rectified": "transformations",
    "SoftHAM": "soft",
    "SoftRead": "soft",
    "Start": "model",
    "State": "memory",
    "Write": "transformations",
    "forced": "memory",
}

if TYPE_CHECKING:
    from ham.models.attentive_decoder import AttentiveDecoder
    from ham.models.encoder_decoder import EncoderDecoder
    from ham.models.lstm_ham import LSTMHAM
    from ham.models.memory import HAM, Read, State, forced
    from ham.models.model import Beforehand, Model, Start
    from ham.models.raw_ham import RawHAM
    from ham.models.soft import SoftHAM, SoftRead
    from ham.models.transformations import MLP, Rectified, Write


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'ham.models' has no attribute {name!r}")
    return getattr(importlib.import_module(f"ham.models.{_HOMES[name]}"), name)


__all__ = [
    "HAM",
    "LSTMHAM",
    "MLP",
    "AttentiveDecoder",
    "Beforehand",
    "EncoderDecoder",
    "Model",
    "RawHAM",
    "Read",
    "Rectified",
    "SoftHAM",
    "SoftRead",
    "Start",
    "State",
    "Write",
    "forced",
]
