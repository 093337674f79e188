"""One suite that every task must pass, the example of docs/own_task.md included."""

from pathlib import Path

import numpy as np
import pytest

from ham import tasks
from ham.core.errors import InputError
from ham.tasks.check import check
from ham.tasks.registry import BUILT_IN

MAXIMUM = f"{Path(__file__).parents[2] / 'examples' / 'maximum.py'}:Maximum"


@pytest.fixture(params=[*BUILT_IN, MAXIMUM], ids=[*BUILT_IN, "maximum"])
def task(request):
    return tasks.get(request.param)


def drawn(task, n, low=1, batch=32, seed=0):
    rng = np.random.default_rng(seed)
    return task.sample(rng, batch, n, task.draw_lengths(rng, batch, low, n))


def test_keeps_the_contract(task):
    assert check(task) == []


@pytest.mark.parametrize("n", [4, 5, 16, 63, 100, 128])
def test_sampled_targets_are_what_the_oracle_says(task, n):
    batch = drawn(task, n, seed=n)
    assert batch.targets.shape == (32, task.symbols(n), task.outputs.width)
    for which, length in enumerate(batch.lengths):
        question = task.decode(batch.inputs[which, :length])
        targets, counted = task.targets(question)
        symbols = task.symbols(int(length))
        assert len(targets) == symbols
        np.testing.assert_array_equal(batch.counted[which, :symbols], counted)
        np.testing.assert_array_equal(batch.targets[which, :symbols], targets)
        assert not batch.counted[which, symbols:].any()
        assert not batch.targets[which, symbols:].any()
        assert task.read_answer(question, batch.targets[which, :symbols]) == task.solve(question)


def test_the_smallest_question_can_be_sampled(task):
    batch = drawn(task, task.shortest)
    assert set(batch.lengths.tolist()) == {task.shortest}


def test_a_short_question_in_a_large_memory(task):
    """Online tasks reach their capacity only beyond the length here, which must not show."""
    rng = np.random.default_rng(3)
    batch = task.sample(rng, 8, 256, np.full(8, 4))
    assert not batch.inputs[:, 4:].any()
    for rows, targets in zip(batch.inputs, batch.targets, strict=True):
        expected, _ = task.targets(task.decode(rows[:4]))
        np.testing.assert_array_equal(targets[: len(expected)], expected)


def test_same_seed_same_batch_and_another_seed_another(task):
    one, same, other = (drawn(task, 32, seed=seed) for seed in (1, 1, 2))
    for part in ("inputs", "lengths", "targets", "counted"):
        np.testing.assert_array_equal(getattr(one, part), getattr(same, part))
    assert not np.array_equal(one.inputs, other.inputs)


def test_the_global_generator_is_left_alone(task):
    before = np.random.get_state()[1].copy()
    drawn(task, 16)
    np.testing.assert_array_equal(np.random.get_state()[1], before)


def test_show_is_read_back(task):
    for which in range(8):
        batch = drawn(task, 8, batch=1, seed=which)
        question = task.decode(batch.inputs[0, : batch.lengths[0]])
        assert task.parse(task.show(question)) == question


def test_the_example_is_solved_as_written(task):
    expected = {
        "reverse": "2 1 3",
        "search": "7",
        "merge": "5 7 3",
        "sort": "3:9 7:1 7:2",
        "add": "10001",
        "sort4": "3 7 7 15",
        "stack": "9",
        "queue": "4",
        "priority_queue": "4",
        "maximum": "17",
    }
    question = task.parse(task.example)
    assert task.show_answer(task.solve(question)) == expected[task.name]


@pytest.mark.parametrize("text", ["", " ", "what", "1:2:3", "pop pop", "-1", "99999", "?", "|", "+", "1.5"])
def test_text_that_is_no_question_is_refused_in_words(task, text):
    with pytest.raises(InputError):
        task.encode(task.parse(text))


@pytest.mark.parametrize("question", [[], None, 5, "ab", [None], [[1]], [1.5], [[1, 2, 3]], [[], []], [-1]])
def test_values_that_are_no_question_are_refused_in_words(task, question):
    with pytest.raises(InputError):
        task.encode(question)


@pytest.mark.parametrize("name", BUILT_IN)
@pytest.mark.parametrize("wrong", [0, 17])
def test_lengths_that_do_not_fit_are_refused(name, wrong):
    task = tasks.get(name)
    with pytest.raises(InputError, match=str(wrong)):
        task.sample(np.random.default_rng(0), 2, 16, np.array([4, wrong]))


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_memory_without_room_is_refused(name):
    task = tasks.get(name)
    with pytest.raises(InputError):
        task.draw_lengths(np.random.default_rng(0), 2, 1, task.shortest - 1)
