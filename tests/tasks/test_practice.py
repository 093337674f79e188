"""What a task is trained on: its own questions, or, for a data structure, ones that ask more of the memory."""

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
    plain, crowded = (task.practice(rng(), 400, 32, lengths, crowded=share) for share in (0.0, 1.0))
    assert plain.inputs[..., PUSH].sum(1).mean() < 20
    assert 24 < crowded.inputs[..., PUSH].sum(1).mean() < 29
    assert_answered_right(task, crowded)


@pytest.mark.parametrize("name", STRUCTURES)
def test_cramped_questions_need_each_leaf_and_no_more_and_are_answered_right(name):
    task = tasks.get(name)
    cramped = task.practice(rng(), 400, 32, np.full(400, 32), leaves=16)
    pushes = cramped.inputs[..., PUSH].sum(1)
    assert pushes.max() == 16
    assert pushes.mean() > 14.5
    assert_answered_right(task, cramped)


def assert_answered_right(task, batch):
    for row in range(50):
        question = task.decode(batch.inputs[row])
        rows, counted = task.targets(question)
        assert np.array_equal(counted, batch.counted[row])
        assert np.array_equal(rows[counted], batch.targets[row][counted])


def test_the_share_is_that_of_crowded_questions():
    task = tasks.get("queue")
    batch = task.practice(rng(), 2000, 32, np.full(2000, 32), crowded=0.5)
    many = batch.inputs[..., POP].sum(1) < 10
    assert 0.4 < many.mean() < 0.6


@pytest.mark.parametrize("name", SEQUENCES)
@pytest.mark.parametrize("harder", [{"crowded": 0.5}, {"leaves": 8}])
def test_only_a_data_structure_can_be_crowded_or_cramped(name, harder):
    task = tasks.get(name)
    with pytest.raises(InputError, match="are for data structures"):
        task.practice(rng(), 4, 16, task.draw_lengths(rng(), 4, 1, 16), **harder)
