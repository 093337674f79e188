"""The notebooks run from top to bottom in a fresh kernel, as Jupyter would run them; and they open in Colab."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def cells_of(path):
    return json.loads(path.read_text("utf-8"))["cells"]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs_and_gives_what_is_stored(notebook, tmp_path):
    execute = Path(sys.executable).with_name("jupyter-execute")
    words = [execute, "--output", tmp_path / "{notebook_name}", notebook]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    made = cells_of(tmp_path / notebook.name)
    assert kinds_of(made) == kinds_of(cells_of(notebook)), "make notebooks stores the outputs anew"


def kinds_of(cells):
    """What kinds of outputs each cell gave; pictures and rounded numbers may differ from machine to machine."""
    return [
        sorted(
            {
                kind
                for out in cell.get("outputs", [])
                if out.get("name") != "stderr"  # that the engine is being built
                for kind in out.get("data", {"text": ""})
            }
        )
        for cell in cells
    ]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_opens_in_colab(notebook):
    title, first, *_ = ("".join(cell["source"]) for cell in cells_of(notebook))
    address = PROJECT["urls"]["Repository"].removeprefix("https://github.com/")
    link = f"https://colab.research.google.com/github/{address}/blob/main/docs/notebooks/{notebook.name}"
    assert link in title
    assert f'%pip install --quiet "{PROJECT["name"]}[view]"' in first


def test_there_are_two():
    assert [path.stem for path in NOTEBOOKS] == ["a_memory_in_your_network", "watch_it_sort"]
