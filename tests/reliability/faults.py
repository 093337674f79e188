"""Lets every write of a training run fail once, one after the other, and looks at what is left.

    python -m tests.reliability.faults

A library that is preloaded (faults.c) counts the calls that create, write, flush or rename a file, and
makes the n-th of them fail: no room left, a broken disk, or a write that takes only half. Whatever n is,
the run must end with one line, everything it left must be whole, and resumed it must come to the same
bits as a run that nobody disturbed. As in kill.py every run is forked after the imports.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.reliability.kill import TINY, check, left_by, warm_up, words_for

from ham import cli
from ham.config import Data, Run, Schedule
from ham.runs import RunFolder

RUN = Run(
    "reverse",
    TINY,
    data=Data(batch=4, batches=2, validation=4, start=1, leaves=2, threshold=1.0),
    schedule=Schedule(epochs=2, patience=1000),
)
KINDS = {"no room left": errno.ENOSPC, "a broken disk": errno.EIO, "a short write": 0}
SOURCE = Path(__file__).with_suffix(".c")


def ham(*words: object, fault: tuple[int, int] | None, notes: Path) -> tuple[int, str, int]:
    """Run `ham` in a process of its own: exit code, what it complained, and how many calls it made."""
    files = [notes / name for name in ("out", "complaint", "calls")]
    sys.stdout.flush()
    if child := os.fork():
        _, status = os.waitpid(child, 0)
        complaint, calls = (file.read_text() for file in files[1:])
        return os.waitstatus_to_exitcode(status), complaint, int(calls)
    code = 70
    try:
        for number, file in enumerate(files[:2], 1):
            os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        shim = ctypes.CDLL(None)
        shim.fault_arm(*((fault[0], fault[1]) if fault else (-1, 0)))
        code = cli.main([str(word) for word in words])
        calls = shim.fault_calls()
        shim.fault_arm(-1, 0)
        files[2].write_text(str(calls))
    finally:
        os._exit(code)


def main() -> int:
    warm_up()
    tried = refused = 0
    with tempfile.TemporaryDirectory() as place:
        here = Path(place)
        recipe = here / "recipe.json"
        recipe.write_text(RUN.to_json())
        straight = RunFolder(here / "straight")
        code, _, calls = ham("train", "--recipe", recipe, "--out", straight.path, fault=None, notes=here)
        assert code == 0
        for kind, number in KINDS.items():
            for place_of_fault in range(calls):
                folder = RunFolder(here / "disturbed")
                words = ("train", "--recipe", recipe, "--out", folder.path)
                code, complaint, _ = ham(*words, fault=(place_of_fault, number), notes=here)
                lines = [line for line in complaint.splitlines() if not line.startswith("backend: ")]
                right = code == 2 and len(lines) == 1 and lines[0].startswith("ham: ")
                if not (right if number else (code, lines) == (0, [])):
                    raise SystemExit(f"{kind} at call {place_of_fault}: exit code {code}, said {complaint!r}")
                if folder.path.exists():
                    check(folder)
                code, complaint, _ = ham("train", *words_for(folder, recipe), fault=None, notes=here)
                if code or left_by(folder) != left_by(straight):
                    raise SystemExit(f"{kind} at call {place_of_fault}: not gone on with: {complaint!r}")
                shutil.rmtree(folder.path)
                tried += 1
                refused += bool(number)
    print(json.dumps({"calls": calls, "faults": tried, "ended_in_one_line": refused}))
    return 0


def preloaded(compiler: str, folder: Path) -> subprocess.CompletedProcess:
    """Compile the library and run this very file under it."""
    library = folder / "faults.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, SOURCE, "-ldl"], check=True)
    environment = {**os.environ, "LD_PRELOAD": str(library)}
    words = [sys.executable, "-m", "tests.reliability.faults"]
    root = Path(__file__).parents[2]
    return subprocess.run(words, env=environment, cwd=root, stdout=-1, stderr=-1, text=True, check=False)


if __name__ == "__main__":
    if "LD_PRELOAD" in os.environ:
        sys.exit(main())
    with tempfile.TemporaryDirectory() as build:
        ended = preloaded(os.environ.get("CC", "cc"), Path(build))
    print(ended.stdout + ended.stderr, end="")
    sys.exit(ended.returncode)
