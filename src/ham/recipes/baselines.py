"""The paper's baselines, each with more parameters than the largest HAM (13,933 in all)."""

from __future__ import annotations

from ham.config import Architecture, Run, Training


def encoder_decoder(task: str) -> Run:
    """The LSTM of Table 1: 17 thousand parameters."""
    return Run(task, Architecture(kind="lstm", cells=40), _TRAINING)


def attentive(task: str) -> Run:
    """The LSTM with attention of Table 1: 18 thousand parameters."""
    return Run(task, Architecture(kind="lstm+a", cells=24), _TRAINING)


_TRAINING = Training(validation=2500, learning_rate=4e-3, learning_rate_decay=0.96)
