"""The memory and the models that use it."""

from ham.nn.lstm_ham import LSTMHAM
from ham.nn.memory import HAM, Read, State, forced
from ham.nn.mlp import MLP, Rectified, Write
from ham.nn.model import Model, Start
from ham.nn.raw_ham import RawHAM
from ham.nn.soft import SoftHAM, SoftRead

__all__ = [
    "HAM",
    "LSTMHAM",
    "MLP",
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
