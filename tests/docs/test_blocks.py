"""Every code block of every page does what it says: Python is run, page by page, and so are the commands, small.

A Python block that cannot be run has a line `<!-- not run: why -->` before it. Commands that take minutes, or other
machines, are only parsed; the reason stands below.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ham.runs import PRETRAINED

ROOT = Path(__file__).parents[2]
PAGES = [
    *sorted(ROOT.glob("docs/**/*.md")),
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "src/ham/ops/README.md")),
]
FENCED = re.compile(
    r"(?:<!-- not run: (?P<why>.+) -->\n)?^(?P<indent> *)```(?P<language>\S*)\n(?P<text>.*?)^ *```$",
    re.M | re.S,
)
COMMAND = re.compile(r"^(?: {4})?(?:\$ )?ham (?P<words>[a-z-]+( .*)?)$(?!\n *ham: )", re.M)

SMALL = {
    "train": "--data.batches 2 --data.validation 2 --schedule.epochs 1 --schedule.finish 0",
    "evaluate": "--examples 2",
    "stress": "--leaves 8 --examples 2",
    "probe": "--leaves 8 --examples 2",
    "view": "--no-open --out page.html",
    "doctor": "--no-speed",
}
"""What is added to a command so that it takes a second."""
ONLY_PARSED = {
    "tune": "searches for hours; tests/search runs it small, on real Ray",
    "sweep": "trains for hours; tests/search runs it small, on real Ray",
    "bench": "measures for minutes; tests/bench runs it small",
    "reproduce": "takes minutes; tests/reproduce runs it small",
}
NEEDS_A_RUN = re.compile(r"runs/(?!sort-0)|--resume")
"""Of those that need what an earlier command of hours would have left."""


def blocks(page: Path) -> list[re.Match]:
    return list(FENCED.finditer(page.read_text("utf-8")))


def python_of(page: Path) -> list[str]:
    return [block["text"] for block in blocks(page) if block["language"] == "python" and not block["why"]]


def commands_of(page: Path) -> list[list[str]]:
    """Each `ham …` in a block without a language, or indented by four spaces, as words; not those shown to fail."""
    text = FENCED.sub(lambda block: "" if block["language"] else block["text"], page.read_text("utf-8"))
    lines = [match["words"] for match in COMMAND.finditer(text)]
    return [shlex.split(line.partition(" > ")[0], comments=True) for line in lines]


def only_parsed(words: list[str]) -> bool:
    return words[0] in ONLY_PARSED or bool(NEEDS_A_RUN.search(" ".join(words)))


def made_small(words: list[str], number: int) -> list[str]:
    out = ["--out", f"trained-{number}"] if words[0] == "train" else []
    return [*words, *SMALL.get(words[0], "").split(), *out]


def run(given: dict, folder: Path) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, Path(__file__).with_name("run_page.py")],
        input=json.dumps(given),
        cwd=folder,
        env=os.environ | {"HAM_BACKEND": "reference"},  # what a page says holds for every engine
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_code_of_a_page_runs(page, tmp_path):
    commands = [words for words in commands_of(page) if words[0] != "--help"]
    given = {
        "python": python_of(page),
        "parsed": [words for words in commands if words[0] in ONLY_PARSED],
        "commands": [
            made_small(words, number) for number, words in enumerate(commands) if not only_parsed(words)
        ],
    }
    if not any(given.values()):
        pytest.skip("there is no code on this page")
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    shutil.copytree(PRETRAINED / "sort", tmp_path / "runs" / "sort-0")
    done = run(given, tmp_path)
    assert done.returncode == 0, done.stderr
    for words, printed in zip(given["commands"], json.loads(done.stdout), strict=True):
        if words[0] in ("solve", "check-task"):
            assert_as_shown(page, words, printed)


def assert_as_shown(page: Path, words: list[str], printed: str) -> None:
    """What the page shows after the command is what it printed."""
    for block in blocks(page):
        command, _, shown = block["text"].partition("\n")
        if command.startswith("$ ham ") and shlex.split(command[6:]) == words and shown:
            assert printed.strip() == shown.strip()


def test_there_is_code_to_run():
    """The patterns above find what they are for."""
    assert len(python_of(ROOT / "docs/own_model.md")) == 3
    assert ["solve", "sort", "7:1 3:9 7:2"] in commands_of(ROOT / "README.md")
    assert ["tune", "sort", "--trials", "64", "--hours", "8"] in commands_of(ROOT / "docs/search.md")
    assert ["trace", "sort", "7:1 3:9 7:2", "--json"] in commands_of(ROOT / "docs/trace_format.md")


def test_every_language_is_known():
    """A block of another kind would not be run, and nobody would know."""
    not_code = {"", "json", "toml", "{include}", "{toctree}", "{eval-rst}"}
    for page in PAGES:
        for block in blocks(page):
            assert block["language"] in not_code | {"python"}, f"{page}: {block['language']}"


@pytest.mark.parametrize(
    "block", ["```python\n1 / 0\n```", "    ham solve sort 3:1000", "    ham tune sort --trails 3"]
)
def test_wrong_code_would_be_found(block, tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"{block}\n")
    given = {"python": python_of(page), "commands": [], "parsed": []}
    for words in commands_of(page):
        given["parsed" if only_parsed(words) else "commands"].append(words)
    done = run(given, tmp_path)
    assert done.returncode != 0
