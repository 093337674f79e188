"""The page's turn labels, counters, race, hard cases, links, pictures, and tasks of one's own."""

import re
import xml.etree.ElementTree as ElementTree
from copy import deepcopy
from pathlib import Path

import pytest
import torch

from ham import tasks
from ham.config import Architecture, Run
from ham.runs import Trained
from ham.use.trace import portable, traces
from ham.view.page import KNOWN, page, prepared

from .conftest import ARTIFACTS
from .test_page import HOSTILE, OWN, ask, at, to_the_end

MAXIMUM = f"{Path(__file__).parents[2] / 'examples' / 'maximum.py'}:Maximum"


def choose(opened, task: str) -> None:
    opened.locator(f"input[name=task][value={task}]").check(force=True)


def test_a_turn_label_names_the_turn_taken_and_how_sure(open_page, best_address):
    opened = open_page(best_address)
    chances = opened.evaluate("ham.trace('sort', ham.at().text).steps.map((step) => step.p_right)")
    for t in (0, 7, 31):
        opened.evaluate(f"ham.seek({4 * t + 1})")
        labels = opened.locator(".pill").all_text_contents()
        assert labels == [
            f"right {round(100 * p)}%" if p > 0.5 else f"left {round(100 * (1 - p))}%" for p in chances[t]
        ]


def test_it_starts_where_the_counters_part_with_the_small_tree_one_tap_away(open_page, best_address):
    opened = open_page(best_address)
    opened.click("#step")
    assert at(opened)["leaves"] == 32
    assert opened.locator("#work-tree").inner_text() == "11 nodes"
    assert opened.locator("#work-attention").inner_text() == "32 cells"
    opened.click("#smaller")
    assert at(opened)["leaves"] == 8
    opened.click("#smaller")
    assert at(opened)["leaves"] == 32
    choose(opened, "sort4")
    assert at(opened)["text"] == "0 14 13 14 9 5 7 13", "trained on 8 only: the paper's own example"


def test_longer_inputs_than_in_training_are_said_to_be(open_page, best_address):
    opened = open_page(best_address)
    trained = opened.locator("#trained")
    assert trained.inner_text() == ""
    opened.select_option("#size", "64")
    opened.click("#roll")
    assert "trained on up to 32" in trained.inner_text()
    opened.select_option("#size", "32")
    opened.click("#roll")
    assert trained.inner_text() == ""


def elements_under_leaves(opened) -> list[list[str]]:
    under = opened.evaluate(
        """() => [...document.querySelectorAll(".node")].map((node) =>
          [...node.querySelectorAll(".label")].map((label) => label.textContent))"""
    )
    return [[line for line in lines if line] for lines in under if any(lines)]


@pytest.mark.parametrize("task", ["stack", "queue", "priority_queue"])
def test_every_element_inside_is_written_under_its_leaf(open_page, best_address, task):
    opened = open_page(best_address)
    choose(opened, task)
    for t in range(32):
        opened.evaluate(f"ham.seek({4 * t + 4})")
        inside = opened.locator("#inside li:not(.none)").all_text_contents()
        lines = elements_under_leaves(opened)
        if not any("more" in line for leaf in lines for line in leaf):
            assert sorted(line for leaf in lines for line in leaf) == sorted(f"+{item}" for item in inside)


def test_elements_that_share_a_leaf_are_written_under_it(open_page, untrained, tmp_path):
    """A network without any weights writes all of them into the first."""
    queue = deepcopy(next(trained for trained in untrained if trained.task.name == "queue"))
    for weights in queue.model.parameters():
        torch.nn.init.zeros_(weights)
    (tmp_path / "ham.html").write_text(page([portable(queue)]), "utf-8")
    opened = open_page((tmp_path / "ham.html").as_uri())
    ask(opened, "queue", "push 1, push 2, push 3, pop")
    opened.evaluate("ham.seek(8)")
    assert [sorted(leaf) for leaf in elements_under_leaves(opened)] == [["+1", "+2"]]
    opened.evaluate("ham.seek(12)")
    ((first, rest),) = elements_under_leaves(opened)
    assert (first, rest) == ("+1", "2 more")


def test_a_sum_is_read_as_people_write_it(open_page, best_address):
    opened = open_page(best_address)
    ask(opened, "add", "1011 + 110")
    opened.evaluate("ham.seek(0)")
    assert opened.locator("#reading").inner_text() == "In decimal: 11 + 6 = 17"
    assert opened.locator(".slot .truth").all_text_contents() == ["end", "1", "0", "0", "0", "1"]
    opened.evaluate("ham.seek(ham.at().last)")
    said = opened.locator(".slot .said").all_text_contents()
    number = int("".join(digit for digit in said if digit != "end"), 2)
    assert opened.locator("#reading").inner_text().endswith(f"the network says {number}")
    ask(opened, "add", f"{10**9:b} + 1")
    assert "1,000,000,000 + 1 = 1,000,000,001" in opened.locator("#reading").inner_text()


def test_thousands_are_written_one_way(open_page, best_address):
    opened = open_page(best_address)
    choose(opened, "stack")
    opened.select_option("#size", "1024")
    opened.click("#roll")
    for position in (0, 4090, 4093, 4096):
        opened.evaluate(f"ham.seek({position})")
        words = opened.evaluate(
            """() => [document.body.innerText, ...[...document.querySelectorAll("[aria-label]")]
              .map((each) => each.getAttribute("aria-label"))].join("\\n")"""
        )
        assert "1,024" in words
        assert re.findall(r"(?<![.\d])\d{4,}\b", words.replace("2016", "")) == []


def test_the_race(open_page, best_address):
    opened = open_page(best_address)
    opened.click("#smaller")
    opened.click("#race-open")
    counts, result = [], opened.locator("#race-result")
    for _ in range(200):
        counts.append(
            [
                int((opened.locator(f"#race-{lane}-count").inner_text().split() or ["0"])[0])  # not yet begun
                for lane in ("tree", "cells")
            ]
        )
        if result.inner_text():
            break
        opened.wait_for_timeout(50)
    assert counts == sorted(counts), "both counters only ever go up"
    assert len({tuple(pair) for pair in counts}) > 5, "and one can watch them"
    # Eight items and End-Of-Output: nine timesteps of seven nodes, or of eight cells.
    assert result.inner_text() == "The tree is ahead: 63 nodes against 72 cells, a factor of 1.1."
    assert opened.locator("#race-cells-said").inner_text() == "0:8 3:9 3:5 7:1 7:2 12:30 18:6 25:4 end"
    opened.keyboard.press("ArrowRight")
    assert at(opened)["position"] == 0, "the page below does not move"
    opened.click("#race-close")
    assert opened.locator("#race").is_hidden()


FAMILIES = {
    "sort": {"all equal", "two keys", "sorted already", "sorted backwards", "sorted runs"},
    "merge": {"neighbouring priorities in turn", "one against many", "one sequence after the other"},
    "add": {"a carry all the way", "nothing but ones", "zero and zero", "no carry at all"},
    "stack": {
        "fill it, then empty it",
        "push and pop in turn",
        "equal values",
        "ascending values",
        "descending values",
    },
    "priority_queue": {"fill it, then empty it", "ascending priorities", "descending priorities"},
}


@pytest.mark.parametrize("name", KNOWN)
def test_hard_cases_are_right_questions(open_page, best_address, name):
    opened = open_page(best_address)
    task = tasks.get(name)
    for size in (4, 32, 128):
        rolled = opened.evaluate(
            "([name, size]) => Array.from({length: 150}, () => ham.attack(name, size))", [name, size]
        )
        found = {attack["family"] for attack in rolled}
        assert found >= {*FAMILIES.get(name, ()), "full to the last leaf", "as short as can be"}
        for attack in rolled:
            rows = len(task.encode(task.parse(attack["text"])))
            assert rows <= size, attack
            assert rows == size or attack["family"] != "full to the last leaf"
            assert rows == task.shortest or attack["family"] != "as short as can be"


def test_the_attack_button_says_what_it_did_and_whether_it_holds(open_page, best_address):
    opened = open_page(best_address)
    held = 0
    for number in range(1, 6):
        opened.click("#attack")
        right = opened.evaluate("ham.trace('sort', ham.at().text).right")
        held += right
        said = opened.locator("#attacked").inner_text()
        assert re.match(
            rf"Hard case: .+\. It {'holds' if right else 'errs'}; {held} of {number} attacks? held", said
        )
    opened.click("#roll")
    assert opened.locator("#attacked").inner_text() == ""


@pytest.mark.parametrize("name", KNOWN)
def test_a_link_carries_the_input(open_page, best_address, name):
    opened = open_page(best_address)
    ask(opened, name, OWN[name])
    link = opened.evaluate("document.getElementById('link').href")
    assert opened.url == link
    assert "%" not in link.partition("#")[2], "people can read it"
    other = open_page(link)
    assert (at(other)["task"], at(other)["text"]) == (name, OWN[name])


def test_links_by_hand_and_nonsense(open_page, best_address):
    opened = open_page(f"{best_address}#sort=7:1,3:9")
    assert (at(opened)["task"], at(opened)["text"]) == ("sort", "7:1 3:9")
    opened.evaluate("location.hash = '#stack=push_4,push%209,pop'")
    opened.wait_for_timeout(100)
    assert (at(opened)["task"], at(opened)["text"]) == ("stack", "push 4, push 9, pop")
    opened.evaluate("location.hash = '#queue'")
    opened.wait_for_timeout(100)
    assert (at(opened)["task"], at(opened)["leaves"]) == ("queue", 32)
    assert opened.locator("#problem").inner_text() == ""
    for nonsense in (
        "#nothing=1",
        "#=1",
        "#sort=%E0%A4%A",
        "#%E0=1",
        "#__proto__=1",
        "#sort=x",
        "#sort=" + "9" * 50_000,
    ):
        wrong = open_page(f"{best_address}{nonsense}")
        assert at(wrong)["task"] == "sort", nonsense
        assert len(at(wrong)["text"].split()) == 32, nonsense
        assert wrong.locator("#problem").inner_text() != "" or nonsense == "#=1"
        wrong.close()


def test_hostile_links_are_only_ever_text(open_page, best_address):
    for text in HOSTILE:
        opened = open_page(best_address)
        opened.evaluate("(text) => { location.hash = `#sort=${text}`; }", text)
        opened.wait_for_timeout(50)
        assert opened.locator("#problem").inner_text() != ""
        assert opened.locator("img").count() == 0
        opened.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_picture_is_saved_as_an_svg_of_its_own(open_page, best_address, scheme):
    opened = open_page(best_address, scheme=scheme)
    opened.evaluate("ham.seek(24)")
    with opened.expect_download() as download:
        opened.click("#save")
    assert download.value.suggested_filename == "ham-sort-timestep-6-of-33.svg"
    target = ARTIFACTS / f"saved-{scheme}.svg"
    download.value.save_as(target)
    text = target.read_text("utf-8")
    assert "var(" not in text
    assert "class=" not in text
    root = ElementTree.fromstring(text)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    words = ["".join(each.itertext()) for each in root.iter("{http://www.w3.org/2000/svg}text")]
    assert words[0] == "Sort, timestep 6 of 33"
    assert sum(word.startswith(("left", "right")) for word in words) == 5
    assert len(list(root.iter("{http://www.w3.org/2000/svg}rect"))) > 63 * 21
    alone = open_page(target.as_uri(), scheme=scheme)
    alone.screenshot(path=ARTIFACTS / f"saved-{scheme}.png")


@pytest.fixture(scope="module")
def own_address(tmp_path_factory) -> str:
    """A page with a task that it cannot read, and nothing else."""
    task = tasks.get(MAXIMUM)
    architecture = Architecture()
    torch.manual_seed(0)
    trained = Trained(architecture.build(task).eval(), task, Run(MAXIMUM, architecture))
    asked = [[3, 17, 4], [9, 1, 30, 2, 2, 8], [1], list(range(32))]
    path = tmp_path_factory.mktemp("own") / "ham.html"
    path.write_text(page([], own=[prepared(task, traces(trained, asked), 16)]), "utf-8")
    return path.as_uri()


def test_a_task_of_ones_own_is_shown(open_page, own_address):
    opened = open_page(own_address)
    assert opened.locator("#tasks").inner_text() == "Maximum"
    assert "the largest of 5-bit numbers" in opened.locator(".hint").first.inner_text()
    assert at(opened)["text"] == "3 17 4"
    labels = [text for text in opened.locator(".label").all_text_contents() if text]
    assert labels == ["3", "17", "4"]
    assert opened.locator("#attack").is_hidden()
    opened.select_option("#speed", "64")
    opened.click("#play")
    to_the_end(opened)
    assert "Done" in opened.locator("#caption").inner_text()
    assert opened.locator(".slot .truth").all_text_contents() == ["17"]
    opened.select_option("#size", "32")
    opened.click("#roll")
    assert at(opened)["leaves"] == 32
    assert "trained on up to 16" in opened.locator("#trained").inner_text()
    ask(opened, "maximum", "9 1  30 2 2 8")
    assert at(opened)["text"] == "9 1 30 2 2 8"
    ask(opened, "maximum", "5 5")
    assert "ham view maximum INPUT" in opened.locator("#problem").inner_text()
    assert at(open_page(f"{own_address}#maximum=1"))["text"] == "1"
