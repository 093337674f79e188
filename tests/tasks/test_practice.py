"""What a task is trained on: its own questions, or, for a data structure, more crowded ones too."""

import numpy as np
import pytest

from ham import tasks
from ham.errors import InputError
from ham.recipes import SEQUENCES, STRUCTURES
from ham.tasks.online import POP, PUSH


def rng():
    return np.random.default_rng(7)


@pytest.mark.parametrize("name", [*SEQUENCES, *STRUCTURES])
def test_without_crowding_practice_is_the_sample(name):
    task = tasks.get(name)
    lengths = task.draw_lengths(rng(), 20, 1, 16)
    sampled, practised = (draw(rng(), 20, 16, lengths) for draw in (task.sample, task.practice))
    assert np.array_equal(sampled.inputs, practised.inputs)
    assert np.array_equal(sampled.targets, practised.targets)


@pytest.mark.parametrize("name", STRUCTURES)
def test_crowded_questions_push_more_and_are_answered_right(name):
    task = tasks.get(name)
    lengths = np.full(400, 32)
    plain, crowded = (task.practice(rng(), 400, 32, lengths, share) for share in (0.0, 1.0))
    assert plain.inputs[..., PUSH].sum(1).mean() < 20
    assert 24 < crowded.inputs[..., PUSH].sum(1).mean() < 29
    for row in range(50):
        question = task.decode(crowded.inputs[row])
        rows, counted = task.targets(question)
        assert np.array_equal(counted, crowded.counted[row])
        assert np.array_equal(rows[counted], crowded.targets[row][counted])


def test_the_share_is_that_of_crowded_questions():
    task = tasks.get("queue")
    batch = task.practice(rng(), 2000, 32, np.full(2000, 32), 0.5)
    many = batch.inputs[..., POP].sum(1) < 10
    assert 0.4 < many.mean() < 0.6


@pytest.mark.parametrize("name", SEQUENCES)
def test_only_a_data_structure_can_be_crowded(name):
    task = tasks.get(name)
    with pytest.raises(InputError, match="is for data structures"):
        task.practice(rng(), 4, 16, task.draw_lengths(rng(), 4, 1, 16), 0.5)
