"""What pyproject.toml cannot say: the README as an index shows it, and wheels that bring a prebuilt engine."""

import re
import tomllib
from pathlib import Path

from setuptools import setup
from setuptools.command.bdist_wheel import bdist_wheel

ROOT = Path(__file__).parent
REPOSITORY = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["urls"]["Repository"]
PLATFORM = ROOT / "src/ham/ops/native/prebuilt/platform"
"""There if scripts/release.py has put engines beside it; says which systems they are for."""
RELATIVE = re.compile(r"(?P<picture>!?)(?P<text>\[[^]]*\])\((?!\w+:|#)")


def readme() -> str:
    """README.md with links that work outside of the repository."""

    def absolute(link: re.Match) -> str:
        kind = "raw" if link["picture"] else "blob"
        return f"{link['picture']}{link['text']}({REPOSITORY}/{kind}/main/"

    return RELATIVE.sub(absolute, (ROOT / "README.md").read_text("utf-8"))


class Wheel(bdist_wheel):
    """A wheel for every system, unless it brings engines; those call no Python, so any version of it will do."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.root_is_pure = not PLATFORM.exists()

    def get_tag(self) -> tuple[str, str, str]:
        return ("py3", "none", PLATFORM.read_text().strip() if PLATFORM.exists() else "any")


setup(
    long_description=readme(), long_description_content_type="text/markdown", cmdclass={"bdist_wheel": Wheel}
)
