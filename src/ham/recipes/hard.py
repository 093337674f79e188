"""The paper's models with hard attention: LSTM+HAM for sequences, raw HAM for data structures."""

from __future__ import annotations

from ham.config import Architecture, Run, Training


def reverse() -> Run:
    return Run("reverse", Architecture(hidden=40), _peers(4, epochs=30, finish=10))


def search() -> Run:
    """One output for each input: runs of one input would only repeat it, so one run each."""
    return Run(
        "search",
        Architecture(hidden=40),
        Training(
            learning_rate=3e-3,
            learning_rate_decay=0.98,
            discount=0.8,
            exploration=1.8e-3,
            exploration_decay=0.94,
            reinforce=1.6,
            patience=20,
            finish=30,
        ),
    )


def merge() -> Run:
    return Run("merge", Architecture(hidden=40), _sequence(4))


def sort() -> Run:
    return Run("sort", Architecture(hidden=40), _sequence(8))


def _sequence(runs: int) -> Training:
    """Found by a search on Merge: trained on up to 8 leaves, validated on 32."""
    return _peers(
        runs,
        learning_rate=5.5e-3,
        learning_rate_decay=0.978,
        discount=0.75,
        exploration=1.1e-3,
        exploration_decay=0.945,
        reinforce=2.8,
        mix=0.25,
        finish=25,
        finish_learning_rate=1.3e-3,
        patience=20,
    )


def add() -> Run:
    """With the paper's questions alone, where each digit lies is learned by heart for each length; hence `varied`.

    A rule for all lengths takes much exploration on each tree anew, and first mastery of the one before it.
    """
    return Run(
        "add",
        Architecture(hidden=40, every=2),
        _peers(
            4,
            learning_rate=3.2e-3,
            learning_rate_decay=0.97,
            threshold=0.03,
            restart=True,
            varied=0.6,
            pull=1.2e-4,
            discount=0.5,
            exploration=6e-3,
            exploration_decay=0.94,
            reinforce=2.3,
            finish=12,
            patience=20,
        ),
    )


def sort4() -> Run:
    """The analysis of section 3.4: few coordinates, so that they can be read.

    One run from four leaves with less exploration stalled there; which of the two changes helped is not known.
    """
    return Run(
        "sort4",
        Architecture(size=6, hidden=40),
        _peers(8, start=2, leaves=8, exploration=3e-3, epochs=60, finish=20),
    )


def stack() -> Run:
    return Run("stack", Architecture(kind="raw-ham", hidden=40), _peers(4, epochs=60, finish=30))


def queue() -> Run:
    """With a leaf for every operation, seeds left out so many that longer inputs ran out of them: hence `cramped`.

    The pull keeps the value of an empty tree where it is, however tall the tree.
    """
    return Run(
        "queue",
        Architecture(kind="raw-ham", hidden=40),
        _peers(4, epochs=60, finish=30, cramped=0.5, pull=1e-4),
    )


def priority_queue() -> Run:
    """Its decisions stay open while it explores, since any free leaf is as good: a long end phase closes them."""
    return Run(
        "priority_queue",
        Architecture(kind="raw-ham", hidden=40),
        _peers(4, learning_rate_decay=0.97, finish=45, finish_decay=0.94),
    )


def _peers(runs: int, **changes) -> Training:
    """Several sampled runs of each input, each compared with the others."""
    return Training(runs=runs, baseline="leave-one-out", **changes)
