"""What is in sight: on a laptop, a phone, a phone on its side; light and dark."""

import pytest

from ham.view.page import KNOWN

from .conftest import ARTIFACTS
from .test_page import at

LAPTOP = {"width": 1280, "height": 800}
PHONE = {"width": 390, "height": 844, "touch": True}
ON_ITS_SIDE = {"width": 844, "height": 390, "touch": True}


def in_sight(opened, *ids: str) -> None:
    """Between the top of the screen and the control bar, and not wider than the screen."""
    bar = opened.locator("#controls").bounding_box()["y"]
    for name in ids:
        box = opened.locator(f"#{name}").bounding_box()
        assert box["y"] >= 0, (name, box)
        assert box["y"] + box["height"] <= bar + 0.5, (name, box, bar)
    assert opened.evaluate("document.documentElement.scrollWidth <= innerWidth"), (
        "nothing sticks out sideways"
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("task", KNOWN)
def test_on_a_laptop_all_that_matters_is_above_the_fold(open_page, best_address, task, scheme):
    opened = open_page(best_address, **LAPTOP, scheme=scheme)
    opened.locator(f"input[name=task][value={task}]").check(force=True)
    last = at(opened)["last"]
    for position in (0, last // 2, last // 2 + 1, last // 2 + 2, last // 2 + 3, last):
        opened.evaluate(f"ham.seek({position})")
        in_sight(opened, "tree", "legend", "work", "answer")
    opened.evaluate(f"ham.seek({last // 2})")
    opened.screenshot(path=ARTIFACTS / f"laptop-{task}-{scheme}.png")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("task", ["sort", "merge", "add", "queue", "priority_queue"])
def test_on_a_phone_play_brings_the_tree_into_sight_and_shrinks_the_bar(
    open_page, best_address, task, scheme
):
    opened = open_page(best_address, **PHONE, scheme=scheme)
    opened.locator(f"input[name=task][value={task}]").check(force=True)
    opened.screenshot(path=ARTIFACTS / f"phone-{task}-{scheme}-first.png")
    before = opened.locator("#controls").bounding_box()["height"]
    opened.locator("#play").tap()
    opened.wait_for_timeout(1200)
    assert at(opened)["playing"]
    in_sight(opened, "caption", "tree", "answer-title")
    assert opened.locator("#controls").bounding_box()["height"] <= 0.6 * before
    opened.screenshot(path=ARTIFACTS / f"phone-{task}-{scheme}.png")
    opened.locator("#play").tap()
    assert not at(opened)["playing"]
    assert opened.locator("#controls").bounding_box()["height"] == before


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("task", ["sort", "merge", "add", "queue"])
def test_on_its_side_the_tree_is_in_sight_from_the_start(open_page, best_address, task, scheme):
    opened = open_page(best_address, **ON_ITS_SIDE, scheme=scheme)
    opened.locator(f"input[name=task][value={task}]").check(force=True)
    in_sight(opened, "caption", "tree", "input", "run")
    opened.locator("#play").tap()
    opened.wait_for_timeout(1200)
    in_sight(opened, "caption", "tree")
    opened.screenshot(path=ARTIFACTS / f"side-{task}-{scheme}.png")


@pytest.mark.parametrize("screen", [LAPTOP, PHONE, ON_ITS_SIDE], ids=["laptop", "phone", "side"])
def test_words_are_explained_and_windows_fit(open_page, best_address, screen):
    opened = open_page(best_address, **screen)
    for term, words in {
        "sure": "p(right)",
        "rejoin": "two children",
        "number": "timestep",
        "attention": "every cell",
    }.items():
        opened.locator(f"[popovertarget=gloss-{term}]").click()
        gloss = opened.locator(f"#gloss-{term}")
        assert words in gloss.inner_text()
        box = gloss.bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= screen["width"]
        opened.keyboard.press("Escape")
        assert gloss.is_hidden()
    opened.click("#race-open")
    opened.wait_for_timeout(600)
    box = opened.locator("#race").bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= screen["width"]
    opened.screenshot(path=ARTIFACTS / f"race-{screen['width']}.png")
