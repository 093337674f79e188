import math

import numpy as np
import pytest
import torch

import ham
from ham import tasks
from ham.core.errors import InputError
from ham.models import LSTMHAM, Model
from ham.ops import Episode
from ham.train.evaluate import Score, evaluate, lengths_for, wilson


class Oracle(Model):
    """Says what the task's own solution is, except for a bit here and there."""

    baseline = None

    def __init__(self, task, wrong_after=math.inf):
        super().__init__()
        self.task, self.wrong_after, self.seen = task, wrong_after, 0
        self.sizes = []

    def episode(self, questions):
        inputs, lengths, symbols = questions.inputs, questions.lengths, questions.symbols
        assert questions.uniforms is None, "evaluation is greedy"
        assert questions.targets is None, "evaluation shows nobody the answers"
        batch = len(inputs)
        outputs = torch.full((batch, symbols, self.task.outputs.width), 9.0)
        for b in range(batch):
            question = self.task.decode(inputs[b, : lengths[b]].numpy())
            rows = torch.from_numpy(self.task.targets(question)[0])
            outputs[b, : len(rows)] = rows * 2 - 1
            if self.seen >= self.wrong_after:
                outputs[b, 0, 0] *= -1
            self.seen += 1
        self.sizes.append(batch)
        nothing = torch.zeros(batch, symbols, 0)
        return Episode(outputs, nothing, nothing.bool(), torch.full((batch, symbols), -1), nothing)


def score_of(model, task, examples=60, lengths=(1, 8), seed=0):
    rng = np.random.default_rng(seed)
    return evaluate(model, task, leaves=8, lengths=lengths, examples=examples, rng=rng)


@pytest.mark.parametrize("name", ["reverse", "sort", "search"])
def test_the_oracle_makes_no_error(name):
    task = tasks.get(name)
    score = score_of(Oracle(task), task)
    assert (score.error, score.part_error) == (0, 0)
    assert score.examples == 60


def test_one_wrong_bit_counts_a_whole_sequence():
    task = tasks.get("reverse")
    score = score_of(Oracle(task, wrong_after=45), task)
    assert (score.wrong, score.wrong_parts) == (15, 15)
    assert score.error == 25
    # Between 2 and 9 symbols of 11 bits each.
    assert 60 * 2 * 11 < score.parts < 60 * 9 * 11
    assert score.part_error == 100 * 15 / score.parts


def test_batches_do_not_change_what_is_counted(monkeypatch):
    task = tasks.get("reverse")
    monkeypatch.setattr("ham.train.evaluate.LARGEST_BATCH", 7)
    model = Oracle(task)
    assert score_of(model, task).error == 0
    assert model.sizes == [7] * 8 + [4]


def test_large_memories_are_run_a_few_at_a_time(monkeypatch):
    task = tasks.get("reverse")
    monkeypatch.setattr("ham.train.evaluate.LEAVES_AT_ONCE", 16)
    model = Oracle(task)
    score_of(model, task, examples=5)
    assert model.sizes == [2, 2, 1]


def test_the_same_seed_gives_the_same_score(engine):
    task = tasks.get("reverse")
    model = LSTMHAM(task.features, task.outputs.width, cells=4, size=4, hidden=4)
    assert score_of(model, task, seed=3) == score_of(model, task, seed=3)
    assert score_of(model, task, seed=3).loss != score_of(model, task, seed=4).loss


@pytest.mark.parametrize(
    ("leaves", "lengths", "examples", "message"),
    [
        (12, (1, 8), 5, "power of two, got 12"),
        (8, (0, 8), 5, "1 ≤ A ≤ B, got 0:8"),
        (8, (5, 4), 5, "1 ≤ A ≤ B, got 5:4"),
        (8, (1, 9), 5, "up to 9 do not fit into 8 leaves"),
        (8, (1, 8), 0, "at least 1, got 0"),
    ],
)
def test_what_cannot_be_evaluated_is_said(leaves, lengths, examples, message):
    task = tasks.get("reverse")
    with pytest.raises(InputError, match=message):
        evaluate(
            Oracle(task),
            task,
            leaves=leaves,
            lengths=lengths,
            examples=examples,
            rng=np.random.default_rng(0),
        )


def test_wilsons_interval_by_hand():
    # z² = 3.841459. For 5 of 100: middle (0.05 + z²/200)/(1 + z²/100) = 0.0666467,
    # half-width z/(1 + z²/100)·√(0.05·0.95/100 + z²/40000) = 0.0451038.
    low, high = wilson(5, 100)
    assert low == pytest.approx(2.15429, abs=1e-4)
    assert high == pytest.approx(11.17505, abs=1e-4)
    # For 0 of n the upper end is z²/(n + z²).
    assert wilson(0, 2500) == (0.0, pytest.approx(100 * 3.841459 / 2503.841459, abs=1e-5))
    assert wilson(2500, 2500) == (pytest.approx(100 * 2500 / 2503.841459, abs=1e-5), 100.0)


def test_a_score_in_percent():
    score = Score(examples=400, wrong=3, parts=10_000, wrong_parts=5, loss=0.1)
    assert (score.error, score.part_error) == (0.75, 0.05)
    low, high = score.interval
    assert 0 < low < 0.75 < high < 3


def test_the_papers_ranges():
    assert lengths_for(32, 32) == (1, 32)
    assert lengths_for(8, 32) == (1, 8)
    # "[2n + 1, 4n]" for n = 32.
    assert lengths_for(128, 32) == (65, 128)


def test_an_interval_holds_its_own_error_to_the_last_bit():
    for examples in range(1, 400):
        for wrong in (0, 1, examples):
            low, high = wilson(wrong, examples)
            assert 0 <= low <= 100 * wrong / examples <= high <= 100


def test_a_seed_means_the_same_examples_whoever_asks(monkeypatch):
    from ham.reproduce import publish
    from ham.reproduce.publish import CARD_SEED, of_seed
    from ham.reproduce.tables import score_of
    from ham.runs import PRETRAINED, load

    monkeypatch.setattr(publish, "FAR_ASKED", 1)
    ham.set_backend("auto")  # a thousand operations, one by one, are slow without the engine
    trained = load("stack")
    for split, leaves in (("test", 32), ("generalisation", 128)):
        in_table, size = score_of(trained, split, examples=6, seed=CARD_SEED)
        [evaluated] = ham.evaluate(trained, leaves=leaves, examples=6, seed=CARD_SEED)
        assert (size, in_table.loss) == (leaves, evaluated["loss"])
        assert of_seed(PRETRAINED / "stack", 6)[split] == evaluated["error"]
