"""The paper's baselines, each with more parameters than the largest HAM (13,933 in all).

Their settings were found by six trials for each model and task (`searches`), on up to 16 leaves and over 20 epochs of
300 batches; the learning rate falls as far in a recipe's 100 epochs as it did in those.
"""

from __future__ import annotations

from ham.config import Architecture, Run, Training


def encoder_decoder(task: str) -> Run:
    """The LSTM of Table 1: 17 thousand parameters."""
    return Run(task, Architecture(kind="lstm", cells=40), _training())


def attentive(task: str) -> Run:
    """The LSTM with attention of Table 1: 18 thousand parameters."""
    gently = {"learning_rate": 0.0048, "learning_rate_decay": 0.988, "threshold": 0.24, "mix": 0.42}
    return Run(
        task, Architecture(kind="lstm+a", cells=24), _training(**gently) if task == "add" else _training()
    )


def _training(**changes: float) -> Training:
    """What did best in nine of the ten searches, or nearly so."""
    found = {"learning_rate": 0.0071, "learning_rate_decay": 0.973, "threshold": 0.38, "mix": 0.44}
    return Training(validation=2500, clip=1.0, patience=20, **{**found, **changes})
