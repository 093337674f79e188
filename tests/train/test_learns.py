"""The whole of it learns: a small Reverse without a single error, on plain PyTorch."""

import numpy as np
import pytest

from ham import tasks
from ham.runs import RunFolder, load
from ham.tasks.reverse import Reverse
from ham.train.evaluate import evaluate
from ham.train.loop import train
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


def test_reverse_up_to_eight_items_without_error(tmp_path, unchecked, reverse_4_bits):
    run = run_with(
        reverse_4_bits.name,
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
    folder = RunFolder(tmp_path / "run")
    folder.begin(run)
    for _ in train(folder.run(), folder):
        pass
    trained = load(folder.path)
    rng = np.random.default_rng(123)
    score = evaluate(trained.model, trained.task, leaves=8, lengths=(1, 8), examples=500, rng=rng)
    assert score.error == 0
