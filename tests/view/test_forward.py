"""The page's forward pass and its reading of questions, in the real browser, against Python."""

import json

import numpy as np
import pytest

from ham import tasks
from ham.core.errors import InputError
from ham.use.trace import Trace, traces
from ham.view.page import KNOWN

CLOSE = 1e-4
TIE = 1e-5
"""Float32 and float64 may disagree about a decision that is closer to one half than this."""
SIZES = {4: 50, 8: 50, 16: 60, 32: 50, 128: 2}

RUN_ALL = """
([name, texts, whole]) => JSON.stringify(texts.map((text, i) => {
  const list = (numbers) => Array.from(numbers, (x) => Math.round(x * 1e7) / 1e7);
  const trace = ham.trace(name, text);
  return {
    leaves: trace.leaves, answer: trace.answer, expected: trace.expected, right: trace.right,
    tree: i < whole ? trace.tree.map(list) : null,
    steps: trace.steps.map((step) => ({
      leaf: step.leaf,
      path: step.path,
      p_right: list(step.p_right),
      value: list(step.value),
      query: i < whole ? list(step.query) : null,
      after: list(step.written.after),
      rejoined: i < whole
        ? step.rejoined.map(({ node, before, after }) => [node, list(before), list(after)]) : null,
      output: step.output && {
        probabilities: list(step.output.probabilities), bits: step.output.bits, item: step.output.item,
        expected: step.output.expected, right: step.output.right,
      },
    })),
  };
}))
"""
# Text goes through the browser's protocol much faster than nested objects.


@pytest.fixture(scope="module")
def shared(browser, address):
    context = browser.new_context()
    page = context.new_page()
    page.goto(address)
    yield page
    context.close()


def questions(task, rng):
    drawn = []
    for size, count in SIZES.items():
        batch = task.sample(rng, count, size, task.draw_lengths(rng, count, 1, size))
        drawn += [task.decode(row[:length]) for row, length in zip(batch.inputs, batch.lengths, strict=True)]
    return drawn


@pytest.mark.parametrize("name", KNOWN)
def test_javascript_does_what_python_does(models, shared, name):
    trained = next((trained for trained in models if trained.task.name == name), None)
    if trained is None:
        pytest.skip(f"no model of {name} is shipped")
    drawn = questions(trained.task, np.random.default_rng(5))
    ours = traces(trained, drawn)
    theirs = json.loads(shared.evaluate(RUN_ALL, [name, [trace.text for trace in ours], 12]))
    ties = sum(compare(trace, other) for trace, other in zip(ours, theirs, strict=True))
    assert ties <= len(drawn) // 100, f"{ties} of {len(drawn)} runs met a tie"


def compare(ours: Trace, theirs: dict) -> bool:
    """Everything alike; true if a tie between float32 and float64 let the two runs part."""
    assert theirs["leaves"] == ours.leaves
    assert theirs["expected"] == ours.expected
    assert len(theirs["steps"]) == len(ours.steps)
    mine, its = [], []
    if theirs["tree"]:
        mine += ours.tree[1:]
        its += theirs["tree"][1:]
    tie = False
    for step, other in zip(ours.steps, theirs["steps"], strict=True):
        if other["leaf"] != step.leaf:
            fork = (
                next(i for i, (a, b) in enumerate(zip(step.path, other["path"], strict=True)) if a != b) - 1
            )
            assert abs(step.p_right[fork] - 0.5) < TIE, ours.text
            tie = True
            break
        mine += [step.p_right, step.value, step.written.after]
        its += [other["p_right"], other["value"], other["after"]]
        if other["rejoined"] is not None:
            mine += [step.query]
            its += [other["query"]]
            for (node, before, after), change in zip(other["rejoined"], step.rejoined, strict=True):
                assert node == change.node
                mine += [change.before, change.after]
                its += [before, after]
        assert (other["output"] is None) == (step.output is None)
        if step.output is None:
            continue
        mine += [step.output.probabilities]
        its += [other["output"]["probabilities"]]
        assert other["output"]["expected"] == step.output.expected
        if other["output"]["bits"] != step.output.bits:
            assert min(abs(p - 0.5) for p in step.output.probabilities) < TIE, ours.text
            tie = True
        else:
            assert other["output"]["item"] == step.output.item
            assert other["output"]["right"] == step.output.right
    np.testing.assert_allclose(
        np.concatenate(its), np.concatenate(mine), atol=CLOSE, rtol=CLOSE, err_msg=ours.text
    )
    assert tie or (theirs["answer"], theirs["right"]) == (ours.answer, ours.right)
    return tie


ALPHABETS = {
    "add": ["0", "1", "10", "+", " ", "2", "a", ""],
    "merge": ["0.1", "0.25", ".5", "1", "0", ":", "|", " ", "3", "31", "32", "1e-3", "-", ","],
    "search": ["1", "3", "31", "32", ":", "?", " ", ",", "-1", "x"],
    "sort": ["1", "7", "31", "32", ":", " ", ",", "-1", "x", "1.5"],
    "reverse": ["1", "1023", "1024", " ", ",", "-1", "x", "1.5", "+"],
    "sort4": ["1", "15", "16", " ", ",", "-1", "x", "1.5"],
    "stack": ["push ", "pop", "4", "31", "32", ",", ", ", " ", "PUSH", "x"],
    "queue": ["push ", "pop", "4", "31", "32", ",", ", ", " ", "Pop", "x"],
    "priority_queue": ["push ", "pop", "4:3", "5:31", "1:32", "4", ",", ", ", ":", "x"],
}

READ_ALL = """
([name, texts]) => JSON.stringify(texts.map((text) => {
  try { return ham.rows(name, text); } catch (error) { return String(error.message); }
}))
"""


def read_by_python(task, text):
    try:
        return task.encode(task.parse(text))
    except InputError as error:
        return str(error)


@pytest.mark.parametrize("name", KNOWN)
def test_the_page_takes_the_questions_that_python_takes(untrained, browser, best_address, name):
    task = tasks.get(name)
    rng = np.random.default_rng(7)
    pieces = ALPHABETS[name]
    texts = ["", " ", ",", task.example]
    texts += ["".join(rng.choice(pieces, rng.integers(1, 9))) for _ in range(400)]
    for _ in range(60):  # a right question with one piece put in somewhere
        batch = task.sample(rng, 1, 8, task.draw_lengths(rng, 1, 4, 8))
        text = task.show(task.decode(batch.inputs[0][: batch.lengths[0]]))
        place = rng.integers(0, len(text) + 1)
        texts += [text, text[:place] + str(rng.choice(pieces)) + text[place:]]
    context = browser.new_context()
    page = context.new_page()
    page.goto(best_address)
    read = json.loads(page.evaluate(READ_ALL, [name, texts]))
    context.close()
    taken = 0
    for text, its in zip(texts, read, strict=True):
        ours = read_by_python(task, text)
        if isinstance(ours, str):
            assert isinstance(its, str), f"{text!r} is refused by Python ({ours}) but taken by the page"
            continue
        assert not isinstance(its, str), f"{text!r} is taken by Python but refused by the page: {its}"
        np.testing.assert_array_equal(np.array(its, np.float32), ours, err_msg=text)
        taken += 1
    assert 60 <= taken < len(texts)


@pytest.mark.parametrize("size", [4, 64, 1024])
def test_random_questions_are_right_questions(browser, best_address, size):
    context = browser.new_context()
    page = context.new_page()
    page.goto(best_address)
    rolled = page.evaluate("(size) => ham.tasks.map((name) => [name, ham.random(name, size)])", size)
    context.close()
    assert {name for name, _ in rolled} == set(KNOWN)
    for name, text in rolled:
        task = tasks.get(name)
        assert len(task.encode(task.parse(text))) == size, name


def test_the_console_gives_the_documented_format(browser, best_address):
    context = browser.new_context()
    page = context.new_page()
    page.goto(best_address)
    text = page.evaluate(
        """() => {
          const { question, ...trace } = ham.trace("sort", "3:1 2:9 3:0");
          return JSON.stringify(trace, (_, value) => ArrayBuffer.isView(value) ? Array.from(value) : value);
        }"""
    )
    context.close()
    trace = Trace.from_json(text)
    assert json.loads(trace.to_json()) == json.loads(text)
