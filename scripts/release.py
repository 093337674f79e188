"""Builds what is released, into `dist/`, and checks it: `python scripts/release.py [--prebuilt] [--out DIR]`.

The source distribution comes first, and the wheels are made from it, so that nothing can be missing from it unnoticed.
With `--prebuilt` there is also a wheel that brings the engine, for x86-64 Linux and the torch that is installed here.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[1]
MAKE_ENGINES = """
import pathlib, sys
from ham.ops.native import compiler, prebuilt

compiler.SECONDS_TO_BUILD = 7200.0  # nobody waits for it
prebuilt.make(pathlib.Path(sys.argv[1]))
"""
GLIBC = re.compile(r"\bGLIBC_2\.(\d+)")
LIBSTDCXX = re.compile(r"\bGLIBCXX_3\.4\.(\d+)")
COMES_WITH = {24: 28, 28: 31, 29: 34, 30: 35, 32: 38, 33: 39}
"""The newest GLIBCXX_3.4.N of systems with glibc 2.M, as the manylinux policies have it."""


def run(*words: object, cwd: Path = ROOT) -> None:
    subprocess.run([sys.executable, *map(str, words)], cwd=cwd, check=True)


def build(kind: str, source: Path, out: Path) -> Path:
    """A distribution made with the packages that are installed here, which set-up has pinned."""
    with TemporaryDirectory() as folder:
        run("-m", "build", "--no-isolation", f"--{kind}", "--outdir", folder, cwd=source)
        (made,) = Path(folder).iterdir()
        return Path(shutil.move(made, out / made.name))


def oldest_glibc(folder: Path) -> int:
    """The minor version of the glibc 2 of the oldest systems that have all that the engines call."""
    words = ["objdump", "-T", *map(str, folder.glob("*.so"))]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    newest = max(map(int, LIBSTDCXX.findall(said)))
    by_library = next(glibc for version, glibc in COMES_WITH.items() if newest <= version)
    return max(by_library, *map(int, GLIBC.findall(said)))


def compiled(engines: Path) -> None:
    """The engines of the sources around their folder."""
    run("-c", MAKE_ENGINES, engines, cwd=engines.parents[3])


def release(out: Path, make_engines: Callable[[Path], None] | None) -> list[Path]:
    """All distributions, checked; a wheel with engines only if there is somebody to make them."""
    out.mkdir(parents=True, exist_ok=True)
    made = [build("sdist", ROOT, out)]
    with TemporaryDirectory() as folder:
        with tarfile.open(made[0]) as archive:
            archive.extractall(folder, filter="data")
        (source,) = Path(folder).iterdir()
        made.append(build("wheel", source, out))
        if make_engines is not None:
            engines = source / "src/ham/ops/native/prebuilt"
            make_engines(engines)
            # setup.py makes a wheel for this platform where it finds the file.
            (engines / "platform").write_text(f"manylinux_2_{oldest_glibc(engines)}_x86_64")
            made.append(build("wheel", source, out))
    run("-m", "twine", "check", "--strict", *made)
    return made


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--prebuilt", action="store_true", help="a wheel with a prebuilt engine too")
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    given = parser.parse_args()
    for path in release(given.out.absolute(), compiled if given.prebuilt else None):
        print(path)


if __name__ == "__main__":
    main()
