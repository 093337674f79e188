"""The memory, the models that use it, and the paper's baselines: one contract, `Model`."""

from ham.models.attentive_decoder import AttentiveDecoder
from ham.models.encoder_decoder import EncoderDecoder
from ham.models.lstm_ham import LSTMHAM
from ham.models.memory import HAM, Read, State, forced
from ham.models.model import Model
from ham.models.raw_ham import RawHAM
from ham.models.soft import SoftHAM, SoftRead
from ham.models.transformations import MLP, Rectified, Write

__all__ = [
    "HAM",
    "LSTMHAM",
    "MLP",
    "AttentiveDecoder",
    "EncoderDecoder",
    "Model",
    "RawHAM",
    "Read",
    "Rectified",
    "SoftHAM",
    "SoftRead",
    "State",
    "Write",
    "forced",
]
