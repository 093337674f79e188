"""Every family is what its name says, fits its memory, and the oracle answers it."""

import functools
import itertools
import operator

import numpy as np
import pytest

from ham import tasks
from ham.core.errors import InputError
from ham.recipes import SEQUENCES, STRUCTURES
from ham.tasks.hard_cases import batch_of, draw_hard, practised_cases

SIZES = [4, 8, 32, 100, 1024]


def families(*names):
    return [
        pytest.param(name, case, id=f"{name}: {case.name}")
        for name in names
        for case in tasks.get(name).hard_cases()
    ]


def drawn(name, family, n=32, count=20):
    (case,) = [case for case in tasks.get(name).hard_cases() if case.name == family]
    rng = np.random.default_rng(n)
    return [case.draw(rng, n) for _ in range(count)]


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize(("name", "case"), families(*SEQUENCES))
def test_a_question_fits_and_is_answered(name, case, n):
    task = tasks.get(name)
    rng = np.random.default_rng(n)
    for _ in range(5):
        question = case.draw(rng, n)
        rows = task.encode(question)
        assert task.shortest <= len(rows) <= n
        targets, counted = task.targets(question)
        assert len(counted) == task.symbols(len(rows))
        assert task.read_answer(question, targets) == task.solve(question)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize(("name", "case"), families(*STRUCTURES))
def test_operations_fit_and_are_answered(name, case, n):
    """No more elements go in than there are leaves, and no more are inside than the structure takes."""
    task = tasks.get(name)
    rng = np.random.default_rng(n)
    for _ in range(3):
        question = case.draw(rng, n)
        assert len(task.encode(question)) == len(question) <= 2 * n
        pops = np.array([item == "pop" for item in question])
        assert (~pops).sum() <= n
        inside = np.cumsum(1 - 2 * pops)
        assert inside.min() >= 0
        assert inside.max() <= (task.capacity or n)
        targets, _ = task.targets(question)
        assert task.read_answer(question, targets) == task.solve(question)


@pytest.mark.parametrize("name", [*SEQUENCES, *STRUCTURES])
def test_about_half_of_the_families_are_practised(name):
    task = tasks.get(name)
    cases = task.hard_cases()
    assert len({case.name for case in cases}) == len(cases) >= 6
    assert abs(2 * len(practised_cases(task)) - len(cases)) <= 1


@pytest.mark.parametrize("name", [*SEQUENCES, *STRUCTURES])
def test_a_batch_holds_the_questions_it_was_made_of(name):
    task = tasks.get(name)
    batch, leaves = draw_hard(np.random.default_rng(1), task, 16, 16)
    assert leaves == (8 if task.online else 16)
    assert batch.lengths.max() <= 16
    questions = [task.decode(rows[:length]) for rows, length in zip(batch.inputs, batch.lengths, strict=True)]
    again = batch_of(task, questions)
    for part in ("inputs", "lengths", "targets", "counted"):
        np.testing.assert_array_equal(getattr(again, part), getattr(batch, part))


def test_a_task_without_hard_cases_says_so():
    task = tasks.get("sort4")
    with pytest.raises(InputError, match="sort4 names no hard cases"):
        draw_hard(np.random.default_rng(0), task, 4, 8)


def keys(question):
    return [key for key, _ in question]


@pytest.mark.parametrize("name", ["sort", "search"])
def test_keys(name):
    def of(family):
        questions = drawn(name, family)
        return [keys(pairs[0] if name == "search" else pairs) for pairs in questions]

    assert all(len(set(found)) == 1 < len(found) for found in of("all keys equal"))
    assert all(len(set(found)) <= 2 for found in of("two keys"))
    assert {len(set(found)) for found in of("two keys")} == {2}
    assert all(set(found) <= {0, 31} for found in of("extremes"))
    assert {len(found) for found in of("full")} == {32 - (name == "search")}
    assert {len(found) for found in of("one")} == {1}
    repeated = [
        sum(a == b for a, b in itertools.pairwise(found)) / len(found) for found in of("runs of keys")
    ]
    assert min(repeated) >= 0.4


def test_orders_of_sort():
    assert all(keys(question) == sorted(keys(question)) for question in drawn("sort", "sorted"))
    assert all(keys(question) == sorted(keys(question))[::-1] for question in drawn("sort", "backwards"))
    for found in map(keys, drawn("sort", "two keys in turn")):
        assert len({*found[::2]}) == len({*found[1::2]}) == 1
        assert found[0] != found[1]


def test_neighbouring_keys_differ_by_one_and_often_in_all_their_bits():
    pairs = [sorted(set(keys(question))) for question in drawn("sort", "neighbouring keys", count=200)]
    assert all(upper == lower + 1 for lower, upper in pairs)
    assert 20 <= sum(pair == [15, 16] for pair in pairs) <= 60
    assert len({lower for lower, _ in pairs}) > 15


def test_queries_of_search():
    assert all(query == pairs[0][0] for pairs, query in drawn("search", "the first key"))
    assert all(query == pairs[-1][0] for pairs, query in drawn("search", "the last key"))


def test_sequences_of_merge():
    def priorities(question):
        return [[priority for priority, _ in part] for part in question]

    for n in (32, 1024):
        grid = 300 * -(-n // 300)
        for family, finer in (("neighbours", 1), ("finer", 4)):
            for question in drawn("merge", family, n, count=5):
                steps = np.diff(np.sort(functools.reduce(operator.iadd, priorities(question), [])))
                rows = len(steps) + 1
                expected = 300 * -(-rows // 300) * finer
                assert np.allclose(steps * expected, 1, atol=0.02), grid
    for first, second in map(priorities, drawn("merge", "adjacent pairs")):
        both = np.sort(first + second)
        assert np.allclose((both[1::2] - both[::2]) * 300, 1, atol=1e-3)
        assert len(first) == len(second)
        assert all((a in first) != (b in first) for a, b in zip(both[::2], both[1::2], strict=True))
    assert all(len(first) == 1 < len(second) for first, second in drawn("merge", "one against many"))
    assert all(len(second) == 1 < len(first) for first, second in drawn("merge", "all but one first"))
    for first, second in map(priorities, drawn("merge", "disjoint")):
        assert max(first) < min(second) or max(second) < min(first)
    for first, second in map(priorities, drawn("merge", "interleaved")):
        order = [priority in first for priority in sorted(first + second)]
        assert all(a != b for a, b in itertools.pairwise(order))


def test_numbers_of_add():
    def of(family):
        return drawn("add", family)

    for first, second in of("carries all the way"):
        assert int(first, 2) + int(second, 2) == 1 << len(first)
    assert all(int(first, 2) == int(second, 2) == 0 for first, second in of("zeros"))
    assert all(set(first + second) == {"1"} for first, second in of("ones"))
    for first, second in of("in turn"):
        assert int(first, 2) ^ int(second, 2) == (1 << len(first)) - 1
        assert "11" not in first
        assert "00" not in first
    assert {len(first + second) for first, second in of("one digit")} == {2}
    assert {len(first + second) for first, second in of("full")} == {30}
    longest = [max(map(len, carries(*question).split("0"))) for question in of("runs of carries")]
    assert np.mean(longest) > 3


def carries(first, second):
    """Which places a carry goes out of, as ones and zeros."""
    carry, found = 0, ""
    for a, b in zip(map(int, reversed(first)), map(int, reversed(second)), strict=True):
        carry = a + b + carry > 1
        found += str(int(carry))
    return found


def test_items_of_reverse():
    assert all(set(items) == {0} for items in drawn("reverse", "zeros"))
    assert all(set(items) == {1023} for items in drawn("reverse", "ones"))
    assert all(len(set(items)) == 1 < len(items) for items in drawn("reverse", "the same item"))
    assert all(items == items[::-1] for items in drawn("reverse", "palindromes"))
    assert {len(items) for items in drawn("reverse", "any length", 4, 100)} == {1, 2, 3, 4}
    assert {len(items) for items in drawn("reverse", "full")} == {32}


@pytest.mark.parametrize("name", STRUCTURES)
def test_operations(name):
    def pops(family, n=32):
        return [[item == "pop" for item in question] for question in drawn(name, family, n)]

    for family in ("fill, then empty", "ascending", "descending"):
        assert all(found == [False] * 32 + [True] * 32 for found in pops(family))
    assert all(found == [False, True] * 32 for found in pops("one in, one out"))
    assert all(found.count(False) == found.count(True) == 32 for found in pops("full memory"))
    assert np.mean([max(np.cumsum(1 - 2 * np.array(found))) for found in pops("full memory")]) > 24
    for found in pops("empty again and again"):
        inside = np.cumsum(1 - 2 * np.array(found))
        assert inside.max() <= 4
        assert (inside == 0).sum() >= 8
    for question in drawn(name, "equal values"):
        values = [item[1] if name == "priority_queue" else item for item in question if item != "pop"]
        assert len(set(values)) == 1


@pytest.mark.parametrize("name", STRUCTURES)
def test_orders_of_pushes(name):
    """A stack's and a queue's values, a priority queue's priorities."""
    for family, sign in (("ascending", 1), ("descending", -1)):
        for question in drawn(name, family):
            pushed = [
                sign * (item[0] if name == "priority_queue" else item) for item in question if item != "pop"
            ]
            assert pushed == sorted(pushed)
