"""Each oracle against another way to the same answer, on a copy that the oracle never saw."""

from bisect import bisect_left
from copy import deepcopy

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ham import tasks

repeatable = settings(deadline=None, max_examples=60, derandomize=True)

five = st.integers(0, 31)
key_values = st.lists(st.tuples(five, five), min_size=1, max_size=70)


def solved(name, question):
    """The oracle's answer, having made sure that question, rows and answer survive the round trip."""
    task = tasks.get(name)
    before = deepcopy(question)
    answer = task.solve(question)
    assert question == before
    targets, _ = task.targets(question)
    assert task.read_answer(question, targets) == answer
    rows = task.encode(question)
    np.testing.assert_array_equal(task.encode(task.decode(rows)), rows)
    return answer


@repeatable
@given(st.lists(st.integers(0, 1023), min_size=1, max_size=70))
def test_reverse(items):
    expected = []
    for item in items:
        expected.insert(0, item)
    assert solved("reverse", items) == expected


@repeatable
@given(key_values, st.data())
def test_search(pairs, data):
    pairs = sorted(pairs, key=lambda pair: pair[0])
    keys = [key for key, _ in pairs]
    query = data.draw(st.sampled_from(keys))
    assert solved("search", (list(pairs), query)) == [pairs[bisect_left(keys, query)][1]]


@repeatable
@given(st.dictionaries(st.integers(1, 300), five, min_size=1, max_size=70), st.data())
def test_merge(value_of, data):
    priorities = sorted(value_of)
    first = data.draw(st.sets(st.sampled_from(priorities)))
    parts = ([k for k in priorities if k in first], [k for k in priorities if k not in first])
    question = tuple([(k / 300, value_of[k]) for k in part] for part in parts)
    assert solved("merge", question) == [value_of[k] for k in priorities]


@repeatable
@given(key_values)
def test_sort_is_stable(pairs):
    by_key_then_place = sorted((key, place, value) for place, (key, value) in enumerate(pairs))
    assert solved("sort", list(pairs)) == [(key, value) for key, _, value in by_key_then_place]


@repeatable
@given(st.lists(st.integers(0, 15), min_size=1, max_size=70))
def test_sort4(items):
    assert solved("sort4", list(items)) == [
        number for number in range(16) for _ in range(items.count(number))
    ]


@repeatable
@given(st.integers(0, 2**40), st.integers(0, 2**40), st.integers(0, 5))
def test_add(one, other, zeros):
    first, second = f"{one:b}", "0" * zeros + f"{other:b}"
    answer = solved("add", (first, second))
    assert sum(bit << place for place, bit in enumerate(answer)) == one + other
    assert len(answer) == max(len(first), len(second)) + 1
    assert tasks.get("add").show_answer(answer) == f"{one + other:b}"


@st.composite
def operations(draw, push):
    """PUSH and POP in any order that never pops from nothing."""
    inside, question = 0, []
    for wants_pop in draw(st.lists(st.booleans(), min_size=1, max_size=70)):
        pop = wants_pop and inside > 0
        question.append("pop" if pop else draw(push))
        inside += -1 if pop else 1
    return question


@repeatable
@given(operations(five))
def test_stack(question):
    inside, expected = (), []
    for item in question:
        if item == "pop":
            *inside, top = inside
            expected.append(top)
        else:
            inside = (*inside, item)
    assert solved("stack", question) == expected


@repeatable
@given(operations(five))
def test_queue(question):
    """What comes out is a prefix of what went in."""
    pushed = [item for item in question if item != "pop"]
    assert solved("queue", question) == pushed[: question.count("pop")]


@repeatable
@given(st.permutations(range(32)), st.lists(five, min_size=32, max_size=32), st.data())
def test_priority_queue(priorities, values, data):
    pushes = iter(zip(priorities, values, strict=True))
    inside, expected, question = {}, [], []
    for wants_pop in data.draw(st.lists(st.booleans(), min_size=1, max_size=32)):
        if wants_pop and inside:
            question.append("pop")
            expected.append(inside.pop(max(inside)))
        else:
            priority, value = next(pushes)
            question.append((priority, value))
            inside[priority] = value
    assert solved("priority_queue", question) == expected


def test_by_hand():
    assert solved("reverse", [1, 2, 3]) == [3, 2, 1]
    assert solved("search", ([(2, 9), (2, 8), (5, 1)], 2)) == [9]
    assert solved("merge", ([(0.2, 1), (0.3, 2)], [(0.1, 3), (1.0, 4)])) == [3, 1, 2, 4]
    assert solved("sort", [(1, 3), (0, 9), (1, 2), (0, 9)]) == [(0, 9), (0, 9), (1, 3), (1, 2)]
    assert solved("sort4", [3, 0, 15, 3]) == [0, 3, 3, 15]
    assert solved("add", ("11", "01")) == [0, 0, 1]
    assert solved("stack", [1, 2, "pop", 3, "pop", "pop"]) == [2, 3, 1]
    assert solved("queue", [1, 2, "pop", 3, "pop", "pop"]) == [1, 2, 3]
    assert solved("priority_queue", [(5, 1), (9, 2), "pop", (1, 3), "pop", "pop"]) == [2, 1, 3]


def test_rows_by_hand():
    """The layouts that trained weights depend on, to the digit."""

    def rows(name, question):
        return tasks.get(name).encode(question).tolist()

    assert rows("reverse", [6]) == [[0, 0, 0, 0, 0, 0, 0, 1, 1, 0]]
    assert rows("sort", [(1, 16)]) == [[0, 0, 0, 0, 1, 1, 0, 0, 0, 0]]
    assert rows("sort4", [6]) == [[0, 1, 1, 0]]
    assert rows("search", ([(1, 16)], 1)) == [
        [0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0],
        [0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1],
    ]
    assert rows("merge", ([(0.5, 1)], [(0.25, 3)])) == [[0.5, 0, 0, 0, 0, 1], [0.25, 0, 0, 0, 1, 1]]
    assert rows("add", ("10", "1")) == [[0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 0, 0], [0, 0, 0], [0, 0, 1]]
    assert rows("stack", [3, "pop"]) == [[1, 0, 0, 0, 0, 1, 1], [0, 1, 0, 0, 0, 0, 0]]
    assert rows("priority_queue", [(16, 3), "pop"]) == [
        [1, 0, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0],
        [0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    ]


def test_targets_by_hand():
    targets, counted = tasks.get("sort4").targets([2, 1])
    assert targets.tolist() == [[0, 0, 0, 1, 0], [0, 0, 1, 0, 0], [0, 0, 0, 0, 1]]
    assert counted.all()
    targets, counted = tasks.get("queue").targets([7, "pop"])
    assert targets.tolist() == [[0, 0, 0, 0, 0], [0, 0, 1, 1, 1]]
    assert counted.tolist() == [False, True]


def test_an_answer_ends_at_end_of_output_whatever_follows():
    symbols = np.array([[0, 1, 0, 1, 0], [0, 0, 0, 0, 1], [1, 1, 1, 1, 0]])
    assert tasks.get("sort4").read_answer([1, 2], symbols) == [5]
    assert tasks.get("sort4").read_answer([1, 2], symbols[:1]) == [5]
