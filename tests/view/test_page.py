"""The page in a real browser: every task played, stepped, fed with own, bad and hostile input."""

import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ham.use.trace import portable
from ham.view.page import KNOWN, page
from ham.view.watch import shipped

from .conftest import ARTIFACTS

OWN = {
    "sort": "9:1 2:30 9:0 4:4 1:1",
    "reverse": "5 1000 7",
    "search": "1:5 3:7 3:8 9:2 ? 3",
    "merge": "0.1:5 0.9:3 | 0.2:7",
    "add": "1011 + 110",
    "sort4": "9 3 3 15 0",
    "stack": "push 3, push 4, pop, pop",
    "queue": "push 3, push 4, pop, pop",
    "priority_queue": "push 9:3, push 30:4, pop, pop",
}
BAD = {
    "sort": [
        ("32:1", "key 1 must be between 0 and 31, got 32"),
        ("a:b", "whole number"),
        ("", "at least one"),
    ],
    "reverse": [("1024", "between 0 and 1023"), ("1 two", "“two”"), ("-1", "-1")],
    "search": [("1:5 3:7 ? 4", "one of the keys"), ("3:1 1:1 ? 1", "sorted"), ("1:5", "question mark")],
    "merge": [("0.1:5", "one |"), ("0.9:1 0.1:2 | 0.5:3", "sorted"), ("2:5 | 0.1:1", "between 0 and 1")],
    "add": [("12 + 1", "“12”"), ("1", "one +"), (" + ", "binary")],
    "sort4": [("16", "between 0 and 15"), ("x", "“x”"), (" ".join(["1"] * 1025), "1,024 rows, got 1,025")],
    "stack": [("pop", "nothing is left"), ("push 99", "between 0 and 31"), ("shove 1", "push or a pop")],
    "queue": [("push 1, pop, pop", "operation 3"), ("push", "push or a pop"), ("", "at least one")],
    "priority_queue": [
        ("push 5:1, push 5:2", "still inside"),
        ("push 1", "two numbers"),
        ("push 40:1", "priority"),
    ],
}
HOSTILE = [
    "<img src=x onerror=alert(1)>",
    "<script>alert(1)</script>",
    '"><svg onload=alert(1)>',
    "</textarea><script>alert(1)</script>",
    "javascript:alert(1)",
    "{{data}} ${alert(1)} `alert(1)`",
    "push <b>1</b>, pop",
    "<img/src/onerror=alert(1)>:1 2:3 ? <b>",
    "__proto__:1 constructor:2",
    "\u202e7:1 \ufffe\u0000 3:9",
    "9" * 400,
    "1:" * 19_000,
]


def ask(opened, task: str, text: str) -> None:
    opened.locator(f"input[name=task][value={task}]").check(force=True)
    opened.fill("#input", text)
    opened.click("#run")


def at(opened) -> dict:
    return opened.evaluate("ham.at()")


def to_the_end(opened) -> None:
    """The page's policy forbids Playwright's own way to wait for a condition, which is eval."""
    for _ in range(600):
        now = at(opened)
        if now["position"] == now["last"] and not now["playing"]:
            return
        opened.wait_for_timeout(50)
    pytest.fail(f"playing never ended: {now}")


@pytest.mark.parametrize("task", KNOWN)
def test_a_task_is_opened_played_stepped_and_given_own_input(open_page, best_address, task):
    opened = open_page(best_address)
    opened.locator(f"input[name=task][value={task}]").check(force=True)
    assert at(opened)["task"] == task
    assert opened.locator("#problem").inner_text() == ""
    assert opened.locator(".node").count() == 2 * at(opened)["leaves"] - 1

    opened.click("#step")
    assert at(opened)["position"] == 1
    assert opened.locator(".edge.on").count() == opened.locator(".pill").count() >= 2
    assert re.fullmatch(r"(left|right) \d+%", opened.locator(".pill").first.text_content())
    opened.click("#step")
    assert opened.locator(".node.read").count() == 1
    opened.click("#step")
    assert opened.locator(".node.written").count() == 1
    assert opened.locator("#changes .change").count() == 1
    opened.click("#step")
    assert opened.locator(".node.joined").count() == opened.locator(".pill").count()
    assert "1 of" in opened.locator("#clock").inner_text()
    opened.click("#back")
    assert at(opened)["position"] == 3

    opened.select_option("#speed", "64")
    opened.click("#play")
    to_the_end(opened)
    assert opened.locator("#caption").inner_text().count("Done") == 1
    assert re.search(r"\d+ of \d+ right$", opened.locator("#verdict").inner_text())
    opened.screenshot(path=ARTIFACTS / f"{task}.png", full_page=True)

    ask(opened, task, OWN[task])
    assert at(opened)["text"] == OWN[task]
    to_the_end(opened)
    said = opened.locator(".slot .said").all_text_contents()
    truth = opened.locator(".slot .truth").all_text_contents()
    marks = [element.get_attribute("class").split()[-1] for element in opened.locator(".slot .said").all()]
    assert len(said) == len(truth)
    for given, right, mark in zip(said, truth, marks, strict=True):
        assert mark in (("unasked",) if right == "" else ("right", "wrong") if given == right else ("wrong",))
    if at(opened)["task"] in ("stack", "queue", "priority_queue"):
        assert opened.locator("#inside").inner_text() == "nothing"


@pytest.mark.parametrize("task", KNOWN)
def test_bad_input_gets_a_line_beside_the_field(open_page, best_address, task):
    opened = open_page(best_address)
    opened.locator(f"input[name=task][value={task}]").check(force=True)
    before = at(opened)
    for text, reason in BAD[task]:
        ask(opened, task, text)
        problem = opened.locator("#problem").inner_text()
        assert reason in problem, (text, problem)
        assert opened.locator("#input").get_attribute("aria-invalid") == "true"
        assert at(opened) == before, "the run that was shown stays"
    ask(opened, task, OWN[task])
    assert opened.locator("#problem").inner_text() == ""


@pytest.mark.parametrize("task", ["sort", "merge", "stack"])
def test_hostile_text_is_only_ever_text(open_page, best_address, task):
    opened = open_page(best_address)
    opened.locator(f"input[name=task][value={task}]").check(force=True)
    inventory = (
        "document.querySelectorAll('img, script, iframe, object, embed, link, svg svg, .problem *').length"
    )
    before = opened.evaluate(inventory)
    for text in HOSTILE:
        ask(opened, task, text)
        assert opened.locator("#problem").inner_text() != ""
        assert opened.evaluate(inventory) == before
    assert opened.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_hostile_text_from_the_command_line(open_page, untrained, tmp_path):
    models = [portable(trained) for trained in untrained if trained.task.name == "sort"]
    for number, text in enumerate(HOSTILE[1::2]):
        path = tmp_path / f"{number}.html"
        path.write_bytes(page(models, "sort", text).encode("utf-8", "surrogatepass"))
        opened = open_page(path.as_uri())
        assert opened.locator("#problem").inner_text() != ""
        assert len(at(opened)["text"].split()) == 32, "the example is shown instead"
        opened.close()


def test_the_policy_holds(browser, best_address):
    """Nothing but the page's own script and style runs, and nothing can be fetched."""
    context = browser.new_context()
    opened = context.new_page()
    refused = []
    opened.on("console", lambda message: refused.append(message.text))
    opened.goto(best_address)
    opened.evaluate(
        """() => {
          const script = document.createElement("script");
          script.textContent = "window.broken = true";
          document.body.append(script);
          document.body.insertAdjacentHTML("beforeend", '<i onclick="window.broken = true" style="color: red">x</i>');
          document.querySelector("i").click();
          const image = document.createElement("img");
          image.src = "https://example.org/x.png";
          document.body.append(image);
        }"""
    )
    assert (
        opened.evaluate("fetch('https://example.org/').then(() => 'fetched', () => 'refused')") == "refused"
    )
    assert opened.evaluate("window.broken") is None
    assert any("Content Security Policy" in line for line in refused)
    policy = opened.locator("meta[http-equiv]").get_attribute("content")
    assert "unsafe" not in policy
    assert "http" not in policy
    context.close()


def test_keys(open_page, best_address):
    opened = open_page(best_address)
    press = opened.keyboard.press
    opened.locator("h1").click()
    press("ArrowRight")
    press("ArrowRight")
    assert at(opened)["position"] == 2
    press("ArrowLeft")
    assert at(opened)["position"] == 1
    press("Shift+ArrowRight")
    assert at(opened)["position"] == 5
    press("End")
    assert at(opened)["position"] == at(opened)["last"]
    press("Home")
    assert at(opened)["position"] == 0
    press("Space")
    assert at(opened)["playing"]
    press("Space")
    assert not at(opened)["playing"]
    # In the field the same keys type.
    opened.focus("#input")
    before = at(opened)["position"]
    press("End")
    press("Space")
    press("ArrowLeft")
    assert at(opened)["position"] == before
    press("Enter")
    assert at(opened)["playing"]


def test_the_tree_is_walked_by_keyboard_and_tells_its_numbers(open_page, best_address):
    opened = open_page(best_address)
    opened.click("#smaller")
    opened.click("#step")
    opened.locator(".node[data-node='1']").focus()
    tip = opened.locator("#tip")
    assert tip.locator(".numbers span").count() == 20
    assert "p(right)" in tip.inner_text()
    opened.keyboard.press("ArrowDown")
    opened.keyboard.press("ArrowDown")
    opened.keyboard.press("ArrowUp")
    assert opened.evaluate("document.activeElement.dataset.node") in ("2", "3")
    opened.keyboard.press("Escape")
    assert tip.is_hidden()
    assert opened.locator(".node[tabindex='0']").count() == 1
    opened.locator(".node[data-node='9']").hover()
    assert "Leaf 1, 3:9" in tip.inner_text()
    for node in opened.locator(".node").all():
        assert node.get_attribute("aria-label")


def test_scrubbing_back_restores_the_memory(open_page, best_address):
    opened = open_page(best_address)
    look = "[...document.querySelectorAll('.cell')].map((cell) => cell.getAttribute('fill-opacity')).join()"
    first = opened.evaluate(look)
    seen = []
    for position in range(9):
        opened.evaluate(f"ham.seek({position})")
        seen.append(opened.evaluate(look))
    assert seen[0] == first
    assert seen[3] != seen[2]
    opened.evaluate("ham.seek(ham.at().last)")
    for position in (8, 3, 5, 0):
        opened.evaluate(f"ham.seek({position})")
        assert opened.evaluate(look) == seen[position]
    opened.locator("#scrub").fill("7")
    assert at(opened)["position"] == 7


def test_a_tap_shows_a_nodes_numbers_on_a_phone(open_page, best_address):
    opened = open_page(best_address, width=390, height=844, touch=True)
    opened.locator("#step").tap()
    opened.locator(".node[data-node='2']").tap()
    box = opened.locator("#tip").bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 390
    assert opened.evaluate("document.documentElement.scrollWidth <= innerWidth"), (
        "nothing sticks out sideways"
    )
    opened.screenshot(path=ARTIFACTS / "phone.png")


@pytest.mark.parametrize("task", ["reverse", "stack"])
def test_a_thousand_leaves_are_folded_and_smooth(open_page, best_address, task):
    opened = open_page(best_address, scheme="dark")
    opened.locator(f"input[name=task][value={task}]").check(force=True)
    opened.select_option("#size", "1024")
    opened.click("#roll")
    assert at(opened)["leaves"] == 1024
    assert opened.locator(".node").count() == 21
    assert opened.locator(".fold").count() == 9
    opened.click("#step")
    assert opened.locator(".pill").count() == 10
    # In the page's own processor time: other work on the machine must not count.
    session = opened.context.new_cdp_session(opened)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def spent() -> float:
        metrics = {
            entry["name"]: entry["value"] for entry in session.send("Performance.getMetrics")["metrics"]
        }
        return 1000 * metrics["TaskDuration"]

    before = spent()
    opened.evaluate(
        "() => { for (let i = 0; i < 40; i++) { ham.seek(900 + 3 * i); document.body.offsetHeight; } }"
    )
    frame = (spent() - before) / 40
    assert frame < 33, f"a frame takes {frame:.0f} ms"
    print(f"{task} with 1,024 leaves: {frame:.1f} ms a frame")
    opened.screenshot(path=ARTIFACTS / f"{task}-1024.png")


def test_a_page_without_models_says_so(open_page, tmp_path):
    path = tmp_path / "empty.html"
    path.write_text(page([]), "utf-8")
    opened = open_page(path.as_uri())
    assert "without any trained model" in opened.locator("#notice").inner_text()


def test_everything_that_can_be_used_has_a_name(open_page, best_address):
    opened = open_page(best_address)
    for element in opened.locator("button, select, textarea, input").all():
        name = element.evaluate(
            "(e) => e.getAttribute('aria-label') || e.labels?.[0]?.textContent.trim() || e.textContent.trim()"
        )
        assert name, element.evaluate("(e) => e.outerHTML")
    assert opened.locator("html").get_attribute("lang") == "en"
    assert opened.locator("h1").count() == 1


def test_the_picture_in_the_readme_is_of_the_shipped_model(open_page, tmp_path):
    """Made anew each time and held against the committed one; HAM_PICTURES=docs/images renews that.

    Fonts differ between machines, so the two are compared from afar.
    """
    models = [portable(trained) for trained in shipped()]
    if "sort" not in {model["task"] for model in models}:
        pytest.skip("no model of sort is shipped")
    path = tmp_path / "ham.html"
    path.write_text(page(models), "utf-8")
    opened = open_page(path.as_uri())
    opened.evaluate("ham.seek(74)")
    target = ARTIFACTS / "page.png"
    opened.screenshot(path=target)
    if folder := os.environ.get("HAM_PICTURES"):
        shutil.copy(target, Path(folder) / "page.png")
    committed = Path(__file__).parents[2] / "docs" / "images" / "page.png"
    made, kept = (
        np.asarray(Image.open(file).convert("L").resize((64, 40)), float) for file in (target, committed)
    )
    apart = np.abs(made - kept).max()
    assert apart < 40, (
        f"{committed} is out of date: HAM_PICTURES=docs/images python -m pytest tests/view -k picture"
    )


def test_the_size(models, address):
    from urllib.parse import unquote, urlparse

    size = Path(unquote(urlparse(address).path)).stat().st_size
    assert size < 1_000_000, f"the page takes {size:,} bytes"
