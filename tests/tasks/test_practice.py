"""What a task is trained on: its own questions, or ones that ask for more."""

import re

import numpy as np
import pytest

from ham import tasks
from ham.core.errors import InputError
from ham.recipes import SEQUENCES, STRUCTURES
from ham.tasks.online import PUSH


def rng():
    return np.random.default_rng(7)


@pytest.mark.parametrize("name", [*SEQUENCES, *STRUCTURES])
def test_practice_is_the_sample_unless_more_is_asked_for(name):
    task = tasks.get(name)
    same = rng()
    sampled = task.sample(same, 20, 16, task.draw_lengths(same, 20, 1, 16))
    practised, leaves = practise(name, 20, 16)
    assert leaves == 16
    assert np.array_equal(sampled.inputs, practised.inputs)
    assert np.array_equal(sampled.targets, practised.targets)


@pytest.mark.parametrize("name", STRUCTURES)
def test_cramped_questions_need_each_leaf_and_no_more_and_are_answered_right(name):
    task = tasks.get(name)
    cramped, leaves = practise(name, 400, 32, cramped=1.0)
    assert leaves == 16
    pushes = cramped.inputs[..., PUSH].sum(1)
    assert pushes.max() == 16
    assert pushes.mean() > 14.5
    assert_answered_right(task, cramped)


@pytest.mark.parametrize("name", STRUCTURES)
def test_a_data_structure_cannot_do_with_less_than_half_the_leaves(name):
    with pytest.raises(InputError, match="32 operations need at least 16 leaves, got 15"):
        tasks.get(name)._drawn(rng(), 4, 32, np.full(4, 32), leaves=15)


def test_the_share_is_that_of_cramped_batches():
    task, same = tasks.get("queue"), rng()
    options = task.practised({"cramped": 0.25})
    leaves = [task.practice(same, 1, 8, 8, options)[1] for _ in range(400)]
    assert set(leaves) == {4, 8}
    assert 0.15 < leaves.count(4) / 400 < 0.35


@pytest.mark.parametrize("name", STRUCTURES)
def test_filling_questions_fill_their_memory_first(name):
    task = tasks.get(name)
    filling, leaves = practise(name, 400, 32, fills=1.0)
    assert leaves == 16
    pushes = filling.inputs[..., PUSH]
    assert pushes.sum(1).max() == 16
    assert np.mean(pushes[:, :8].mean(1) > 0.85) > 0.6
    inside = np.cumsum(2 * pushes - 1, axis=1).max(1)
    usual = practise(name, 400, 32, cramped=1.0)[0].inputs[..., PUSH]
    assert 0.3 < np.mean(inside == 16) < 0.45
    assert np.mean(inside >= 14) > 0.3 > 0.2 > np.mean(np.cumsum(2 * usual - 1, axis=1).max(1) >= 14)
    assert_answered_right(task, filling)


def test_closer_priorities_are_the_same_questions_on_finer_grids():
    usual, _ = practise("merge", 400, 32)
    closer, leaves = practise("merge", 400, 32, closer=1.0)
    assert leaves == 32
    assert np.array_equal(usual.targets, closer.targets)
    assert np.array_equal(usual.inputs[..., 1:], closer.inputs[..., 1:])
    assert np.array_equal(usual.inputs[..., 0] > 0, closer.inputs[..., 0] > 0)
    assert 0 <= closer.inputs.min() <= closer.inputs.max() <= 1
    gaps, fine = (np.diff(np.sort(batch.inputs[batch.lengths == 32, :, 0])) for batch in (usual, closer))
    assert gaps.min() == pytest.approx(1 / 300, rel=1e-4)
    assert 0.99 / 300 / 256 <= fine.min() < 1 / 300 / 128
    rows = closer.inputs[closer.lengths > 1, :, 0]
    low, high = np.where(rows > 0, rows, 1).min(1), rows.max(1)
    close = high - low < 0.05
    at_an_end = (low < 0.05) | (high > 0.95)
    assert 0.3 < at_an_end[close].mean() < 0.6
    assert 0.02 < np.median(fine / gaps) < 0.2  # 1/16, of a few dozen
    orders = (np.argsort(batch.inputs[..., 0], axis=1, kind="stable") for batch in (usual, closer))
    assert np.array_equal(*orders)


def test_the_share_is_that_of_closer_questions():
    usual, some = (practise("merge", 1000, 8, closer=share)[0] for share in (0.0, 0.3))
    moved = (usual.inputs != some.inputs).any((1, 2))
    assert 0.25 < moved.mean() < 0.35


@pytest.mark.parametrize("name", SEQUENCES)
def test_only_a_data_structure_can_be_filled(name):
    with pytest.raises(
        InputError, match=rf"{name} has no option practice\.fills; there are (none|varied|closer)"
    ):
        practise(name, 4, 16, fills=0.5)


def assert_answered_right(task, batch):
    for row in range(50):
        question = task.decode(batch.inputs[row])
        rows, counted = task.targets(question)
        assert np.array_equal(counted, batch.counted[row])
        assert np.array_equal(rows[counted], batch.targets[row][counted])


def test_varied_sums_are_right():
    batch = varied_sums(400, 32)
    for rows, targets, counted in zip(batch.inputs, batch.targets, batch.counted, strict=True):
        text = written(rows)
        assert re.fullmatch(r" *([01] *)+\+ *([01] *)+= *", text)
        first, second = numbers_of(rows)
        total = bin(int(first, 2) + int(second, 2))[2:].zfill(max(len(first), len(second)) + 1)
        assert "".join(str(int(bit)) for bit in targets[counted][:-1, 0]) == total[::-1]
        assert targets[counted][-1, -1] == 1


def test_blank_rows_are_everywhere_and_never_more_than_fit():
    batch = varied_sums(2000, 16)
    texts = [written(rows) for rows in batch.inputs]
    assert all(any(text[row : row + 1] == " " for text in texts) for row in range(16))
    assert [len(text) for text in texts] == batch.lengths.tolist()


def test_numbers_of_varied_sums_have_all_lengths():
    numbers = [numbers_of(rows) for rows in varied_sums(2000, 16).inputs]
    assert {len(first) for first, _ in numbers} == set(range(1, 14))
    assert {len(second) for _, second in numbers} == set(range(1, 14))


def test_the_shares_are_those_of_varied_sums():
    inputs = varied_sums(2000, 32, share=0.5).inputs
    assert 0.4 < np.mean([" " in written(rows) for rows in inputs]) < 0.5
    assert 0.4 < np.mean([len(first) != len(second) for first, second in map(numbers_of, inputs)]) < 0.5


def varied_sums(count, n, share=1.0):
    return practise("add", count, n, varied=share)[0]


def written(rows):
    """A question as it is written: a digit, + or = for each row, and a space for each that is blank.

    Rows after the question's last, which are zeros like the digit 0, are left out.
    """
    signs = {(0, 0): "01", (1, 0): "+", (0, 1): "=", (1, 1): " "}
    read = [signs[int(plus), int(equals)] for _, plus, equals in rows]
    text = "".join(
        sign[int(bit)] if len(sign) == 2 else sign for sign, (bit, _, _) in zip(read, rows, strict=True)
    )
    question, _, rest = text.partition("=")
    return f"{question}={' ' * rest.count(' ')}"


def numbers_of(rows):
    return [digits[::-1] for digits in written(rows).replace(" ", "").strip("=").split("+")]


@pytest.mark.parametrize("name", sorted({*SEQUENCES, *STRUCTURES} - {"add"}))
def test_only_sums_can_be_varied(name):
    with pytest.raises(
        InputError, match=rf"{name} has no option practice\.varied; there are (none|closer|cramped, fills)"
    ):
        practise(name, 4, 16, varied=0.5)


@pytest.mark.parametrize("name", SEQUENCES)
def test_only_a_data_structure_can_be_cramped(name):
    with pytest.raises(
        InputError, match=rf"{name} has no option practice\.cramped; there are (none|varied|closer)"
    ):
        practise(name, 4, 16, cramped=0.5)


def test_an_option_is_a_share():
    with pytest.raises(InputError, match=r"practice\.cramped must lie in 0 … 1, got 1.5"):
        practise("queue", 4, 16, cramped=1.5)


def practise(name, count, n, **options):
    task = tasks.get(name)
    return task.practice(rng(), count, n, n, task.practised(options))
