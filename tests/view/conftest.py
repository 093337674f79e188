"""A real browser, and pages with models to open in it: random weights always, shipped ones if there are."""

import os
import shutil
from pathlib import Path

import pytest

from ham.use.trace import portable
from ham.view.page import page
from ham.view.watch import shipped

ARTIFACTS = Path(__file__).parent / "artifacts"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
QUIET = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update")


@pytest.fixture(scope="session")
def browser():
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        no_browser("Playwright is not installed (pip install playwright)")
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        no_browser("no Chromium is installed (tests/view/install_browser.sh installs Debian's)")
    ARTIFACTS.mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=list(QUIET))
        yield browser
        browser.close()


def no_browser(reason: str) -> None:
    if os.environ.get("CI") == "true":
        pytest.fail(f"the page must be tested under CI, but {reason}")
    pytest.skip(reason)


@pytest.fixture(scope="session")
def address(models, tmp_path_factory) -> str:
    """A page with all these models inside."""
    path = tmp_path_factory.mktemp("page") / "ham.html"
    path.write_text(page([portable(trained) for trained in models]), "utf-8")
    return path.as_uri()


@pytest.fixture(scope="session")
def best_address(untrained, tmp_path_factory) -> str:
    """A page of every task, with the shipped model where there is one."""
    chosen = {trained.task.name: trained for trained in (*untrained, *shipped())}
    path = tmp_path_factory.mktemp("page") / "ham.html"
    path.write_text(page([portable(trained) for trained in chosen.values()]), "utf-8")
    return path.as_uri()


@pytest.fixture
def open_page(browser):
    """Opens a page; whatever it logs, throws, asks or fetches from elsewhere fails the test."""
    contexts, complaints = [], []

    def opened(
        address: str, *, width: int = 1280, height: int = 800, scheme: str = "light", touch: bool = False
    ):
        context = browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme=scheme,
            has_touch=touch,
            reduced_motion="reduce",
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(30_000)
        page.on("console", lambda message: complaints.append(f"console {message.type}: {message.text}"))
        page.on("pageerror", lambda error: complaints.append(f"error: {error}"))
        page.on("dialog", lambda dialog: (complaints.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on(
            "request",
            lambda request: (
                None
                if request.url.startswith(("file:", "data:"))
                else complaints.append(f"fetched {request.url}")
            ),
        )
        page.goto(address)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert complaints == []
