"""A page whose figures a command wrote says what that command would say now; what goes stale is found here."""

import importlib.util
import re
import shutil
from pathlib import Path

import pytest

import ham
from ham.bench import report
from ham.core.errors import InputError
from ham.reproduce import document, exact, pages, publish, tables
from ham.reproduce.publish import CARD, origin
from ham.runs import PRETRAINED, shipped

ROOT = Path(__file__).parents[2]
RESULTS = (ROOT / "docs" / "results.md").read_text("utf-8")
AGAIN = "run `ham reproduce --seed 1 --document docs/results.md` again"


def test_the_results_are_of_the_models_that_are_shipped():
    assert f"`{pages.fingerprint()}`" in RESULTS, f"a shipped model has changed: {AGAIN}"


def test_what_the_results_say_of_training_is_what_the_runs_left():
    pairs = tables.wanted()
    for lines in (
        document.seed_table(pairs),
        document.time_table(document.logs_of(pairs)),
        document.search_table(),
    ):
        assert "\n".join(lines) in RESULTS, AGAIN


def test_the_readme_has_the_figures_of_the_results():
    readme = (ROOT / "README.md").read_text("utf-8")
    again = "run `python -m ham.reproduce.pages docs/results.md README.md`"
    assert pages.between(readme, "results")[1] == pages.short_tables(RESULTS) + "\n", again
    assert pages.between(readme, "exact")[1] == pages.table_under(RESULTS, pages.EXACT) + "\n", again


def test_a_table_is_found_under_its_heading_only():
    page = "## One\n\ntext\n\n## Two\n\nwords\n\n| a | b |\n|---|---|\n\n| other |\n"
    assert pages.table_under(page, "Two") == "| a | b |\n|---|---|"
    with pytest.raises(InputError, match="no table under 'One'"):
        pages.table_under(page, "One")


@pytest.mark.parametrize("name", shipped())
def test_a_card_says_how_its_model_came_about(name):
    written = (PRETRAINED / name / CARD).read_text("utf-8").splitlines()
    lines = origin(PRETRAINED / name, name)
    assert written[: len(lines)] == lines, "publish the model again"


def test_a_card_is_written_anew(tmp_path, monkeypatch):
    monkeypatch.setattr(publish, "PRETRAINED", tmp_path)
    monkeypatch.setattr(exact, "HARD_ASKED", 1)
    ham.set_backend("auto")  # a thousand operations and more, one by one, are slow without the engine
    shutil.copytree(PRETRAINED / "stack", tmp_path / "stack", ignore=lambda *_: [CARD])
    written = (publish.renew("stack", examples=5) / CARD).read_text("utf-8")
    assert written.splitlines()[: len(origin(PRETRAINED / "stack", "stack"))] == origin(
        PRETRAINED / "stack", "stack"
    )
    assert "| leaves | lengths | examples | wrong | error | 95% interval | bits wrong |" in written
    with pytest.raises(InputError, match="no model named 'sorted' is shipped"):
        publish.renew("sorted")


def test_measured_blocks_have_the_form_that_their_commands_write():
    spec = importlib.util.spec_from_file_location("complexity", ROOT / "benchmarks" / "complexity.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    _, block, _ = pages.between((ROOT / "docs" / "complexity.md").read_text("utf-8"), "measured")
    sizes = re.findall(r"^\| 2\^(\d+) ", block, re.M)
    assert sizes == [str(exponent) for exponent in script.EXPONENTS]
    performance = (ROOT / "docs" / report.PAGE).read_text("utf-8")
    assert performance.count(report.BEGIN) == performance.count(report.END) == 1
    for title, *_ in report.TARGETS.values():
        assert f"| {title} |" in performance, "run `ham bench` again"


def test_a_page_without_its_block_is_refused():
    with pytest.raises(InputError, match="one block between"):
        pages.replaced("no marks", "results", "figures")


def test_a_block_is_replaced_and_nothing_else():
    page = "before\n<!-- results -->\nold\n<!-- /results -->\nafter\n"
    assert pages.replaced(page, "results", "new") == page.replace("old", "new")
