"""What a person gets wrong is said with the value and its place."""

import pytest

from ham import tasks
from ham.core.errors import InputError

WRONG = [
    ("reverse", "1 2 1024", "item 3 .* 1023, got 1024"),
    ("reverse", "1 two", "whole number, got 'two'"),
    ("sort", "7:1 32:0", "key 2 .* 31, got 32"),
    ("sort", "7:1 3:40", "value 2 .* 31, got 40"),
    ("sort", "7:1 3", "got '3'"),
    ("sort4", "3 16", "item 2 .* 15, got 16"),
    ("search", "3:7 1:5 ? 3", "key 2, 1, comes after 3"),
    ("search", "1:5 3:7 ? 4", "one of the keys, got 4"),
    ("search", "1:5 3:7", "question mark"),
    ("search", "? 4", "at least one key"),
    ("merge", "0.9:5 0.1:3 | 0.2:7", "sorted, but 0.1 comes after 0.9"),
    ("merge", "0.1:5 0.9:3 | 0.9:7", "differ, got 0.9 twice"),
    ("merge", "0.1:5 0.1:3 |", "differ, got 0.1 twice"),
    ("merge", "1.1:5 | 0.9:7", "between 0 and 1, got 1.1"),
    ("merge", "nan:5 | 0.9:7", "between 0 and 1, got nan"),
    ("merge", "0.1:5 0.9:3", r"one \| between"),
    ("add", "102 + 1", "binary number such as 1011, got '102'"),
    ("add", "1 + 1 + 1", r"one \+ between"),
    ("stack", "push 4, pop, pop", "operation 3 is a pop"),
    ("queue", "pop", "operation 1 is a pop"),
    ("queue", "push 4, peek", "operation 2 .* got 'peek'"),
    ("queue", "push 40", "operation 1, push: the value .* got 40"),
    ("priority_queue", "push 4", "two numbers such as 7:1"),
    ("priority_queue", "push 32:4", "operation 1, push: the priority .* got 32"),
    ("priority_queue", "push 3:4, push 3:5", "operation 2 pushes priority 3"),
]


@pytest.mark.parametrize(("name", "text", "message"), WRONG)
def test_wrong_text(name, text, message):
    with pytest.raises(InputError, match=message):
        tasks.get(name).encode(tasks.get(name).parse(text))


def test_a_priority_may_come_back_once_it_is_out():
    task = tasks.get("priority_queue")
    assert task.solve(task.parse("push 3:4, pop, PUSH 3:5, Pop")) == [4, 5]


def test_merge_with_one_empty_sequence():
    task = tasks.get("merge")
    assert task.parse("0.1:5 |") == ([(0.1, 5)], [])
    assert task.solve(task.parse("| 0.1:5")) == [5]


def test_the_shorter_number_is_filled_with_zeros():
    task = tasks.get("add")
    assert task.decode(task.encode(("1011", "110"))) == ("1011", "0110")
    assert task.show_answer([0, 0, 0]) == "0"
    assert task.show_answer([]) == ""


def test_names():
    assert tasks.names()[0] == "reverse"
    assert tasks.get("Priority-Queue").name == "priority_queue"
    with pytest.raises(
        InputError, match=r"no task is named 'sorting' \(did you mean sort\?\); there are reverse"
    ):
        tasks.get("sorting")
    with pytest.raises(InputError, match=r"no file nowhere\.py"):
        tasks.get("nowhere.py:Task")


def test_files_that_hold_no_whole_task(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("from ham.tasks import Task, register\nclass Half(Task):\n    name = 'half'\nOther = 3\n")
    with pytest.raises(InputError, match="does not define decode, encode, sample, solve"):
        tasks.get(f"{file}:Half")
    with pytest.raises(InputError, match="no task class Other"):
        tasks.get(f"{file}:Other")
    file.write_text("from ham.tasks import Task, register\n@register\nclass Nameless(Task): pass\n")
    with pytest.raises(InputError, match="Nameless needs a name"):
        tasks.get(f"{file}:Nameless")


def test_two_tasks_of_one_name():
    with pytest.raises(InputError, match="two tasks are named 'reverse'"):
        tasks.register(type("Another", (type(tasks.get("reverse")),), {}))


TRUE_IS_NO_NUMBER = [
    ("reverse", [1, True], "item 2 .* got True"),
    ("sort", [[True, 1]], "key 1 .* got True"),
    ("merge", [[[True, 1]], [[0.5, 2]]], "between 0 and 1, got True"),
]


@pytest.mark.parametrize(("name", "question", "message"), TRUE_IS_NO_NUMBER)
def test_true_is_no_number(name, question, message):
    with pytest.raises(InputError, match=message):
        tasks.get(name).encode(question)
