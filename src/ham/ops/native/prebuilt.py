"""Engines that come with the package, so that no compiler is needed.

The engine speaks to PyTorch in C++, so a build is for one version of it. One that does not fit, because of its sources,
PyTorch or the processor, is passed over, and the engine is built here as if there were none.
"""

from __future__ import annotations

import os
from pathlib import Path

import torch

from ham.ops.native import compiler
from ham.ops.native.compiler import Build, flags_for

FOLDER = Path(__file__).with_name("prebuilt")
LEVELS = {
    "x86-64-v4": {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"},
    "x86-64-v3": {"avx2", "bmi1", "bmi2", "f16c", "fma", "movbe"},
}
"""Kinds of processors, the best first, and what /proc/cpuinfo has of each beside what those below have."""


def find() -> Build | None:
    """The engine that came with the package for this PyTorch and a processor like this one, if there is one."""
    if os.environ.get("HAM_SANITIZE") or os.environ.get("HAM_MARCH"):
        return None
    for level in levels_here():
        file = FOLDER / name_of(level)
        if (version := _version_if_intact(file)) is not None:
            return Build(file, "none: it came with the package", version, flags_for(level), 0.0, cached=True)
    return None


def make(folder: Path) -> None:
    """Compile an engine for each level into a folder, for this PyTorch."""
    folder.mkdir(parents=True, exist_ok=True)
    chosen = compiler.find_compiler()
    version = compiler.version_of(chosen)
    for level in LEVELS:
        file = folder / name_of(level)
        # Without symbols for debuggers: a tenth of the size.
        compiler.compile_to(file, chosen, (*flags_for(level), "-s"))
        file.with_suffix(".version").write_text(version)


def name_of(level: str) -> str:
    """The file of a level's engine: another one for other sources and for another PyTorch."""
    torch_version = torch.__version__.partition("+")[0]  # one release's builds have the same C++ interface
    return f"engine-{compiler.key_of(flags_for(level), torch_version, torch.compiled_with_cxx11_abi())}.so"


def levels_here() -> list[str]:
    """What this processor can run, the best first."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return []
    has = {word for line in lines if line.startswith("flags") for word in line.split()}
    names = list(LEVELS)
    return [
        level
        for place, level in enumerate(names)
        if set().union(*(LEVELS[name] for name in names[place:])) <= has
    ]


def _version_if_intact(file: Path) -> str | None:
    if compiler.seconds_if_intact(file) is None:
        return None
    return file.with_suffix(".version").read_text()
