"""The laws that random questions follow."""

import numpy as np
import pytest

from ham import tasks
from ham.core.errors import InputError

RNG = np.random.default_rng


@pytest.mark.parametrize("name", ["reverse", "merge", "sort", "sort4"])
@pytest.mark.parametrize(("low", "high"), [(1, 8), (17, 32), (5, 5)])
def test_lengths_are_uniform(name, low, high):
    lengths = tasks.get(name).draw_lengths(RNG(0), 20_000, low, high)
    share = np.bincount(lengths, minlength=high + 1)[low:] / len(lengths)
    assert lengths.min() == low
    assert lengths.max() == high
    np.testing.assert_allclose(share, 1 / (high - low + 1), atol=0.015)


def test_search_has_at_least_a_pair_and_a_query():
    assert set(tasks.get("search").draw_lengths(RNG(0), 1000, 1, 4).tolist()) == {2, 3, 4}


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(1, 8, {4, 6, 8}), (5, 9, {6, 8}), (6, 6, {6}), (65, 70, {66, 68, 70}), (1, 4, {4})],
)
def test_sums_have_an_even_number_of_rows(low, high, expected):
    lengths = tasks.get("add").draw_lengths(RNG(0), 3000, low, high)
    values, counts = np.unique(lengths, return_counts=True)
    assert set(values.tolist()) == expected
    np.testing.assert_allclose(counts / 3000, 1 / len(expected), atol=0.05)


@pytest.mark.parametrize(("low", "high"), [(5, 5), (1, 3), (9, 8)])
def test_sums_that_cannot_be(low, high):
    with pytest.raises(InputError, match="add"):
        tasks.get("add").draw_lengths(RNG(0), 2, low, high)


def test_sums_of_odd_rows_are_refused():
    with pytest.raises(InputError, match="even"):
        tasks.get("add").sample(RNG(0), 1, 8, np.array([5]))


@pytest.mark.parametrize("name", ["stack", "queue", "priority_queue"])
def test_data_structures_always_fill_the_memory(name):
    assert tasks.get(name).draw_lengths(RNG(0), 5, 65, 128).tolist() == [128] * 5


def test_search_asks_for_a_key_that_is_there():
    batch = tasks.get("search").sample(RNG(0), 500, 32, RNG(1).integers(2, 33, 500))
    for rows, length in zip(batch.inputs, batch.lengths, strict=True):
        pairs, query = tasks.get("search").decode(rows[:length])
        assert pairs == sorted(pairs, key=lambda pair: pair[0])
        assert query in [key for key, _ in pairs]
        assert rows[:, -1].tolist() == [float(place == length - 1) for place in range(32)]


def test_search_asks_for_every_place_alike():
    batch = tasks.get("search").sample(RNG(0), 20_000, 5, np.full(20_000, 5))
    keys = batch.inputs[..., :5] @ [16, 8, 4, 2, 1]
    different = (np.diff(keys[:, :4], axis=1) > 0).all(1)
    asked = (keys[different, :4] == keys[different, 4:]).mean(0)
    np.testing.assert_allclose(asked, 1 / 4, atol=0.02)
    np.testing.assert_allclose(batch.targets.mean((0, 1)), 0.5, atol=0.02)


def test_keys_of_sort_repeat():
    batch = tasks.get("sort").sample(RNG(0), 50, 32, np.full(50, 32))
    assert any(len({key for key, _ in tasks.get("sort").decode(rows)}) < len(rows) for rows in batch.inputs)


@pytest.mark.parametrize(("length", "grid"), [(2, 300), (32, 300), (300, 300), (301, 600), (1024, 1200)])
def test_merge_priorities_are_different_points_of_their_grid(length, grid):
    rng = RNG(0)
    batch = tasks.get("merge").sample(rng, 40, 1100, np.array([length, 300] * 20))
    for rows in batch.inputs[::2, :length]:
        steps = rows[:, 0].astype(float) * grid
        np.testing.assert_allclose(steps, np.rint(steps), atol=1e-3)
        assert len(set(np.rint(steps).tolist())) == length
        assert 1 <= np.rint(steps).min() <= np.rint(steps).max() <= grid


def test_merge_priorities_are_uniform_and_so_is_the_split():
    batch = tasks.get("merge").sample(RNG(0), 20_000, 4, np.full(20_000, 4))
    steps = np.rint(batch.inputs[..., 0].ravel() * 300).astype(int)
    share = np.bincount(steps, minlength=301)
    assert share[0] == 0
    np.testing.assert_allclose(share[1:] / len(steps), 1 / 300, rtol=0.35)
    # A split at 1, 2 or 3 with equal chance falls there unless the halves happen to be in order
    falls = (np.diff(batch.inputs[..., 0], axis=1) < 0).mean(0)
    np.testing.assert_allclose(falls, [3 / 4 / 3, 5 / 6 / 3, 3 / 4 / 3], atol=0.015)
    assert ((np.diff(batch.inputs[..., 0], axis=1) < 0).sum(1) <= 1).all()


def test_long_questions_can_be_sampled():
    for name in ("reverse", "search", "merge", "sort", "sort4", "add"):
        batch = tasks.get(name).sample(RNG(0), 1, 1 << 16, np.array([1 << 16]))
        assert batch.inputs[0, -1].any() or name in ("reverse", "sort", "sort4")


def test_carries_run_through_a_whole_sum():
    """Random bits rarely carry far, so the vectorised carry is tried on every pair of 4-bit numbers."""
    task = tasks.get("add")
    seen = set()
    for seed in range(40):
        batch = task.sample(RNG(seed), 200, 10, np.full(200, 10))
        for rows, targets in zip(batch.inputs, batch.targets, strict=True):
            first, second = task.decode(rows)
            total = sum(int(bit) << place for place, bit in enumerate(targets[:5, 0]))
            assert total == int(first, 2) + int(second, 2)
            seen.add((first, second))
    assert len(seen) == 256


@pytest.mark.parametrize("name", ["stack", "queue", "priority_queue"])
def test_pop_has_probability_t_of_n(name):
    n, batch = 16, 20_000
    sample = tasks.get(name).sample(RNG(0), batch, n, np.full(batch, n))
    pops = sample.inputs[..., 1].astype(bool)
    inside = np.cumsum(1 - 2 * pops, axis=1)
    before = np.concatenate([np.zeros((batch, 1)), inside[:, :-1]], axis=1)
    assert (inside >= 0).all()
    assert not pops[before == 0].any()
    for time in range(1, n):
        free_to_choose = before[:, time] > 0
        assert pops[free_to_choose, time].mean() == pytest.approx((time + 1) / n, abs=0.03)
    assert (pops[:, -1] == (before[:, -1] > 0)).all()


def test_pop_probability_follows_each_examples_own_length():
    sample = tasks.get("stack").sample(RNG(0), 8000, 16, np.repeat([2, 16], 4000))
    second_is_pop = sample.inputs[:, 1, 1].reshape(2, 4000).mean(1)
    assert second_is_pop == pytest.approx([1, 2 / 16], abs=0.03)


def test_priorities_inside_differ_are_uniform_and_run_out():
    task, ranks, fullest = tasks.get("priority_queue"), [], 0
    batch = task.sample(RNG(0), 300, 128, np.full(300, 128))
    for rows in batch.inputs:
        inside = set()
        for item in task.decode(rows):
            if item == "pop":
                inside.remove(max(inside))
                continue
            assert len(inside) < 32
            free = sorted(set(range(32)) - inside)
            if len(free) > 1:
                ranks.append(free.index(item[0]) / (len(free) - 1))
            inside.add(item[0])
            fullest = max(fullest, len(inside))
    assert fullest == 32
    assert np.mean(ranks) == pytest.approx(0.5, abs=0.02)
    assert np.mean(np.array(ranks) < 0.25) == pytest.approx(0.25, abs=0.03)
