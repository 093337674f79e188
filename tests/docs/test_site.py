"""The site builds without a warning, and has a place for everything that is public."""

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import ham

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The built site; every warning is an error, a link inside it that leads nowhere among them."""
    folder = tmp_path_factory.mktemp("site")
    words = ["-q", "-W", "--keep-going", "-d", folder / "doctrees", ROOT / "docs", folder / "html"]
    done = subprocess.run([sys.executable, "-m", "sphinx", *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / "html"


def test_every_public_name_is_in_the_reference(site):
    page = (site / "api" / "index.html").read_text("utf-8")
    public = {name for name in ham.__all__ if not isinstance(getattr(ham, name), ModuleType)}
    assert not {name for name in public if f'id="ham.{name}"' not in page}


def test_the_site_fetches_nothing(site):
    for page in site.rglob("*.html"):
        text = page.read_text("utf-8")
        assert 'src="http' not in text, page
        assert '<link rel="stylesheet" href="http' not in text, page


@pytest.mark.parametrize(
    "notebook", sorted((ROOT / "docs" / "notebooks").glob("*.ipynb")), ids=lambda p: p.stem
)
def test_notebooks_are_shown_with_their_outputs(site, notebook):
    cells = json.loads(notebook.read_text("utf-8"))["cells"]
    pictures = sum("image/png" in out.get("data", {}) for cell in cells for out in cell.get("outputs", []))
    page = (site / "notebooks" / f"{notebook.stem}.html").read_text("utf-8")
    assert pictures >= 1
    assert page.count("_images/") >= pictures
