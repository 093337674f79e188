"""`check` finds what is wrong with a task that is almost right."""

import sys
from dataclasses import replace

import numpy as np
import pytest

from ham.tasks import HardCase, Task, bits_of
from ham.tasks.check import check
from ham.tasks.reverse import Reverse

pytestmark = pytest.mark.usefixtures("unchecked")


def broken(**members):
    return type("Broken", (Reverse,), members)()


def sample_with(change):
    """Reverse's sample with something changed in the batch."""

    def sample(self, rng, batch, n, lengths):
        return change(Reverse.sample(self, rng, batch, n, lengths))

    return sample


def unordered(self, rng, batch, n, lengths):
    return Reverse.sample(self, np.random.default_rng(), batch, n, lengths)


def spilled(batch):
    inputs = batch.inputs.copy()
    inputs[:, -1] = 1
    return replace(batch, inputs=inputs)


def sorts_in_place(self, question):
    question.sort()
    return question


CASES = {
    "name is missing or not a word": ({"name": ""}, "name must be a word, got ''"),
    "a name that leads elsewhere": ({"name": "../../evil"}, "name must be a word, got '../../evil'"),
    "a name that is no text to show": ({"name": "a\x1b[31mb"}, "name must be a word"),
    "options that are none": (
        {"options": 5},
        "options must be a dataclass that inherits from ham.tasks.Practice, got 5",
    ),
    "hard cases that are none": (
        {"hard_cases": lambda _: 5},
        "hard_cases() must give a sequence of ham.tasks.HardCase",
    ),
    "a hard case that is too long": (
        {"hard_cases": lambda _: [HardCase("long", lambda rng, n: [0] * (n + 1), practised=False)]},
        "the hard case 'long' must fit into 16 leaves, got 17 rows",
    ),
    "an end of the program": ({"decode": lambda *_: sys.exit(5)}, "raised SystemExit: 5"),
    "a width of zero": ({"features": 0}, "features must be a whole number from 1, got 0"),
    "ends is no truth value": ({"ends": 1}, "ends must be True or False, got 1"),
    "every is zero": ({"every": 0}, "every must be None or a whole number from 1, got 0"),
    "no batch": ({"sample": lambda *_: None}, "must give a ham.tasks.Batch, got NoneType"),
    "float64": (
        {"sample": sample_with(lambda batch: replace(batch, inputs=batch.inputs.astype(float)))},
        "must give inputs as float32 of shape (16, 2, 10), got float64",
    ),
    "other lengths": (
        {"sample": sample_with(lambda batch: replace(batch, lengths=batch.lengths + 1))},
        "must keep the lengths it was given",
    ),
    "targets too short": (
        {"sample": sample_with(lambda batch: replace(batch, targets=batch.targets[:, 1:]))},
        "must give targets as float32 of shape (16, 3, 11), got float32 of shape (16, 2, 11)",
    ),
    "rows beyond the length": ({"sample": sample_with(spilled)}, "leave rows beyond the length zero"),
    "its own randomness": ({"sample": unordered}, "same batch for the same seed"),
    "no randomness": (
        {"sample": lambda self, rng, *rest: Reverse.sample(self, np.random.default_rng(0), *rest)},
        "same inputs for another seed",
    ),
    "wrong targets": (
        {"sample": sample_with(lambda batch: replace(batch, targets=np.roll(batch.targets, 1, 0)))},
        "but solve says",
    ),
    "wrong mask": (
        {"sample": sample_with(lambda batch: replace(batch, counted=~batch.counted))},
        "counted must be",
    ),
    "not numbers": (
        {"sample": sample_with(lambda batch: replace(batch, inputs=batch.inputs * np.float32("nan")))},
        "finite inputs",
    ),
    "targets between": (
        {"sample": sample_with(lambda batch: replace(batch, targets=batch.targets / 2))},
        "zeros and ones",
    ),
    "wrong oracle": ({"solve": lambda self, question: question}, "but solve says"),
    "oracle of another length": ({"solve": lambda self, question: [1]}, "symbols("),
    "oracle that sorts in place": ({"solve": sorts_in_place}, "solve changed its question"),
    "encode is not decode's inverse": (
        {"encode": lambda self, question: bits_of(question, 10)[:, ::-1]},
        "encode(decode(rows)) must be the same rows",
    ),
    "lengths outside": (
        {"draw_lengths": lambda self, rng, batch, low, high: np.full(batch, high + 1)},
        "draw_lengths(rng, 16, 1, 2) must stay within 1 and 2, got 3 to 3",
    ),
    "lengths of real numbers": (
        {"draw_lengths": lambda self, rng, batch, low, high: np.full(batch, 1.0 * high)},
        "must give 16 whole numbers, got float64",
    ),
    "an exception": ({"solve": lambda self, question: question.nothing}, "raised AttributeError"),
    "an example nobody can read": ({"example": "one"}, "raised InputError: expected a whole number"),
    "no example": ({"example": ""}, "example is missing"),
    "show that parse does not read": ({"show": lambda self, question: "1"}, "show gives '1'"),
    "an answer that is not text": ({"show_answer": lambda self, answer: 1}, "show_answer must give text"),
    "answers read wrongly": ({"read_answer": lambda *_: []}, "read_answer of the right symbols must be"),
}


@pytest.mark.parametrize(("members", "message"), CASES.values(), ids=CASES)
def test_is_found(members, message):
    problems = check(broken(**members))
    assert any(message in problem for problem in problems), problems


def test_a_right_task_has_no_problems():
    assert check(broken()) == []


def test_what_is_no_task():
    assert check(3) == ["a task must be an instance of ham.tasks.Task, got int"]


def test_missing_attributes_are_all_named():
    class Bare(Task):
        sample = solve = encode = decode = None

    problems = check(Bare())
    assert [problem.split()[0] for problem in problems] == ["name", "summary", "features", "answer_bits"]


def test_parse_is_not_needed():
    assert check(broken(parse=Task.parse, example="")) == []
