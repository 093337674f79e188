"""The page's reading of questions, in the real browser, on texts spoilt at random."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ham import tasks
from ham.view.page import KNOWN
from hostile import cases, questions

ASK_ALL = """
([name, texts]) => JSON.stringify(texts.map((text) => {
  try {
    const { expected, steps } = ham.trace(name, text);
    const finite = steps.every((step) => [...step.value, ...step.query, ...step.p_right].every(Number.isFinite));
    return { expected, finite };
  } catch (error) {
    return { kind: error.constructor.name, message: error.message };
  }
}))
"""


@pytest.fixture(scope="module")
def opened(browser, best_address):
    context = browser.new_context()
    page = context.new_page()
    page.goto(best_address)
    yield page
    context.close()


def plain(text: str) -> bool:
    """Whether both languages agree what is a blank and what a digit."""
    return all(char in "\t\n" or " " <= char <= "~" for char in text)


@pytest.mark.parametrize("name", KNOWN)
@cases(8)
@given(st.data())
def test_what_the_page_takes_python_takes_too_and_all_else_is_refused(opened, name, data):
    drawn = data.draw(st.lists(questions(name), min_size=10, max_size=10))
    # A lone surrogate cannot be sent to the browser, nor typed there.
    texts = [text.encode("utf-8", "replace").decode() for text in drawn]
    task = tasks.get(name)
    for text, found in zip(texts, json.loads(opened.evaluate(ASK_ALL, [name, texts])), strict=True):
        if "kind" in found:
            assert found["kind"] == "InputError", (text[:100], found)
            assert found["message"]
        else:
            assert found["finite"]
            if plain(text):
                question = task.parse(text)
                task.encode(question)
                assert found["expected"] == task.show_answer(task.solve(question))
