"""The whole of it learns: a small Reverse without a single error, with every controller and another estimator."""

import numpy as np
import pytest

from ham import tasks
from ham.config import Architecture
from ham.core.errors import InputError
from ham.runs import RunFolder, load
from ham.tasks.reverse import Reverse
from ham.train.evaluate import evaluate
from ham.train.loop import Epoch, train
from settings import run_with


@pytest.fixture
def reverse_4_bits(monkeypatch):
    from ham.tasks import registry

    monkeypatch.setattr(registry, "_classes", dict(registry._classes))

    @tasks.register
    class ReverseFourBits(Reverse):
        name = "reverse_4_bits"
        features = answer_bits = 4

    return ReverseFourBits()


def small(controller="lstm", **changes):
    """A run that learns to reverse in some seconds."""
    settings = dict(
        batch=32,
        runs=4,
        baseline="leave-one-out",
        epochs=8,
        batches=100,
        validation=200,
        start=2,
        leaves=8,
        learning_rate=1e-2,
        learning_rate_decay=0.95,
        averaging=0.97,
        exploration=1.5e-3,
        exploration_decay=0.85,
    )
    return run_with("reverse_4_bits", Architecture(controller=controller), **{**settings, **changes})


def learned(run, path, **given):
    """Its error in percent after training, from the checkpoint that it leaves; and its epochs."""
    folder = RunFolder(path)
    folder.begin(run)
    epochs = [event for event in train(folder.run(), folder, **given) if isinstance(event, Epoch)]
    trained = load(folder.path)
    rng, leaves = np.random.default_rng(123), run.data.leaves
    score = evaluate(trained.model, trained.task, leaves=leaves, lengths=(1, leaves), examples=500, rng=rng)
    return score.error, epochs


def test_reverse_up_to_eight_items_without_error(tmp_path, unchecked, reverse_4_bits):
    error, epochs = learned(small(), tmp_path / "run")
    assert error == 0
    for epoch in epochs:
        assert epoch.train_loss == pytest.approx(sum(epoch.train_parts.values()))
        assert epoch.train_parts.keys() == {"cross_entropy", "reinforce", "exploration"}


@pytest.mark.parametrize("controller", ["gru", "feed-forward"])
def test_every_controller_learns_to_reverse(tmp_path, unchecked, reverse_4_bits, controller):
    error, _ = learned(small(controller, leaves=4), tmp_path / "run")
    assert error < 10


def test_an_estimator_of_ones_own_learns(tmp_path, unchecked, reverse_4_bits):
    """Given as a function."""
    seen = []

    def against_the_mean(outcomes):
        seen.append(outcomes.returns.shape)
        mean = (outcomes.returns * outcomes.ran).sum(0) / outcomes.ran.sum(0).clamp(min=1)
        return outcomes.returns - mean

    run = small(leaves=4, runs=1, baseline="own.py:against_the_mean")
    with pytest.raises(InputError, match=r"the baseline is in a file, own.py:against_the_mean: its function"):
        learned(run, tmp_path / "refused")
    error, _ = learned(run, tmp_path / "run", estimator=against_the_mean)
    assert error < 10
    assert len(seen) == run.schedule.epochs * run.data.batches
