"""`reproduction/index.html` in a real browser: the live page first, and tables that fit a phone."""

import pytest

from ham.use.trace import portable
from ham.view.plots import Measured
from ham.view.report import write_report

from .conftest import ARTIFACTS

CELL = "84.3% [83, 86] · paper 99%"


@pytest.fixture(scope="module")
def report(untrained, tmp_path_factory) -> str:
    tables = [
        ("Table 1, test error", ("lstm", "lstm+a", "lstm+ham", "dham"), [("sort", *[CELL] * 4)]),
        ("Table 2, test error", ("raw-ham", "dham"), [("priority_queue", CELL, "—")]),
    ]
    epoch = {"epoch": 1, "error": 1.0, "train_error": 2.0, "longest": 32, "entropy": 0.1}
    points = [Measured(size, 1.0, 0.5, 2.0) for size in (32, 64, 128, 256, 512, 1024)]
    path = write_report(
        tmp_path_factory.mktemp("report"),
        tables,
        "Errors in percent of whole sequences.",
        {"sort": {"lstm+ham": points}},
        {"sort": {"lstm+ham": 32}},
        {"sort": {"lstm+ham": [epoch]}},
        [portable(trained) for trained in untrained],
    )
    return path.as_uri()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("width", "height"), [(1280, 800), (390, 844), (844, 390)])
def test_the_report(open_page, report, width, height, scheme):
    opened = open_page(report, width=width, height=height, scheme=scheme)
    live = opened.locator("iframe").bounding_box()
    assert live["y"] < height / 2, "the live page comes first"
    assert all(
        table.bounding_box()["y"] > live["y"] + live["height"] for table in opened.locator("table").all()
    )
    inside = opened.frame_locator("iframe")
    inside.locator("#play").wait_for()
    assert inside.locator(".node").count() >= 11
    assert opened.evaluate("document.documentElement.scrollWidth <= innerWidth"), (
        "nothing sticks out sideways"
    )
    for table in opened.locator("table").all():
        box = table.bounding_box()
        assert box["x"] + box["width"] <= width
        assert CELL in table.inner_text()
    assert opened.evaluate("[...document.images].every((image) => image.complete && image.naturalWidth > 0)")
    opened.screenshot(path=ARTIFACTS / f"report-{width}-{scheme}.png", full_page=True)
