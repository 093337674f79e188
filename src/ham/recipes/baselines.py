"""The paper's baselines, each with more parameters than the largest HAM (13,933 in all).

Their settings were found by six trials for each model and task (`searches`), on up to 16 leaves and over 20 epochs of
300 batches; the learning rate falls as far in a recipe's 100 epochs as it did in those.
"""

from __future__ import annotations

from ham.config import Architecture, Run, Training


def encoder_decoder(task: str) -> Run:
    """The LSTM of Table 1: 17 thousand parameters."""
    return Run(task, Architecture(kind="lstm", cells=40), _training(0.00712, 0.973, 0.38, 0.43))


def attentive(task: str) -> Run:
    """The LSTM with attention of Table 1: 18 thousand parameters."""
    found = (0.0048, 0.988, 0.24, 0.42) if task == "add" else (0.0071, 0.973, 0.38, 0.44)
    return Run(task, Architecture(kind="lstm+a", cells=24), _training(*found))


def _training(learning_rate: float, decay: float, threshold: float, mix: float) -> Training:
    return Training(
        validation=2500,
        learning_rate=learning_rate,
        learning_rate_decay=decay,
        clip=1.0,
        threshold=threshold,
        mix=mix,
        patience=20,
    )
