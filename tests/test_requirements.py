"""The lists of hashes are complete, agree with the versions that were chosen, and name no address."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PINNED = re.compile(r"^([A-Za-z0-9_.-]+)==(\S+)", re.M)


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(name: str) -> dict[str, str]:
    return {normal(package): version for package, version in PINNED.findall((ROOT / name).read_text())}


def direct(*extras: str) -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [
        *project["dependencies"],
        *(line for e in extras for line in project["optional-dependencies"][e]),
    ]
    return {normal(re.match(r"[A-Za-z0-9_.-]+", line)[0]) for line in wanted} - {"ham-memory"}


@pytest.mark.parametrize("name", ["run", "test", "torch"])
def test_every_package_has_a_version_and_hashes_and_no_address(name):
    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    entries = re.split(r"\n(?=\S)", text.strip())
    assert all(PINNED.match(entry) and "--hash=sha256:" in entry for entry in entries)
    assert not re.search(r"://|@|index|find-links", text)


def test_the_lists_hold_the_chosen_versions():
    chosen = pins("constraints.txt")
    for name in ("run", "test"):
        for package, version in pins(f"requirements/{name}.txt").items():
            assert chosen.get(package, version) == version, f"{package}: run make lock"
    assert pins("requirements/torch.txt")["torch"].partition("+")[0] == chosen["torch"]


def test_what_the_package_needs_is_in_the_lists():
    assert direct("view") <= pins("requirements/run.txt").keys() | {"torch"}
    assert direct("view", "tune", "docs", "dev") <= pins("requirements/test.txt").keys() | {"torch"}


def test_every_dependency_is_explained():
    page = (ROOT / "docs" / "dependencies.md").read_text().lower()
    extras = ("view", "tune", "docs", "dev", "bench", "tensorboard")
    missing = {name for name in direct(*extras) | set(pins("requirements/test.txt")) if name not in page}
    assert not missing
