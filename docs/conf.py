"""How the site is built: `make docs`.

The pages are Markdown that reads well as files too, so they link to each other and to the sources by relative paths.
What lies outside of `docs` is linked at the project's address, unless a page of the site includes it.
"""

import os
import re
import tomllib
from pathlib import Path

from sphinx.ext.napoleon import Config, GoogleDocstring
from sphinx.util import logging

import ham.models

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
REPOSITORY = PROJECT["urls"]["Repository"]

project = "HAM"
author = PROJECT["authors"][0]["name"]
version = release = PROJECT["version"]
html_title = f"HAM {version}"
copyright = f"{author}, Apache-2.0"

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.viewcode"]
exclude_patterns = ["**/.ipynb_checkpoints"]

html_theme = "furo"
html_theme_options = {"source_repository": REPOSITORY, "source_branch": "main", "source_directory": "docs/"}
html_static_path: list[str] = []
html_copy_source = False

# Notebooks are shown with the outputs that are stored in them; a test runs them.
nb_execution_mode = "off"
myst_heading_anchors = 3
suppress_warnings = ["myst.header"]  # `ham bench` writes its tables without a heading above them

# In docstrings `name` is code, and a link where the name is documented.
default_role = "py:obj"
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_default_options = {"members": True, "exclude-members": "forward"}
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True

# autodoc does not see names that are imported on first use.
for module in (ham, ham.models):
    for name in module.__all__:
        setattr(module, name, getattr(module, name))

LINK = re.compile(r"(?<=\]\()(?!\w+:|#)([^)\s#]+)(#[^)\s]*)?(?=\))")
INCLUDE = re.compile(r"```\{include\} (\S+)\n```")
_log = logging.getLogger(__name__)


def with_links(text: str, file: Path, page: str) -> str:
    """The text of a file as the text of a page: what is linked relative to the file is found from the page."""

    def found(link: re.Match) -> str:
        target = (file.parent / link[1]).resolve()
        name = target.relative_to(ROOT).as_posix()
        if not target.exists():
            _log.warning("%s links to %s, which is not there", file.relative_to(ROOT), name, location=page)
        if target in INCLUDED:
            target = INCLUDED[target]
        elif ROOT / "docs" not in target.parents:
            return f"{REPOSITORY}/blob/main/{name}{link[2] or ''}"
        return os.path.relpath(target, (ROOT / "docs" / page).parent) + (link[2] or "")

    return LINK.sub(found, text)


INCLUDED = {
    (page.parent / name).resolve(): page
    for page in (ROOT / "docs").rglob("*.md")
    for name in INCLUDE.findall(page.read_text("utf-8"))
}
"""Files from elsewhere that are pages of the site, and their pages."""


def read(app, page: str, source: list[str]) -> None:
    file = Path(app.env.doc2path(page))
    if file.suffix != ".md":
        return

    def included(directive: re.Match) -> str:
        other = (file.parent / directive[1]).resolve()
        app.env.note_dependency(str(other))
        return with_links(other.read_text("utf-8"), other, page)

    source[0] = INCLUDE.sub(included, with_links(source[0], file, page))


def sections(app, what, name, obj, options, lines: list[str]) -> None:
    """`Args:` and the like as lists. Not in an attribute's docstring, where Google's style takes a colon for a type."""
    if what not in ("attribute", "data", "property"):
        lines[:] = GoogleDocstring(lines, Config(), app, what, name, obj, options).lines()


def setup(app) -> None:
    app.connect("source-read", read)
    app.connect("autodoc-process-docstring", sections)
