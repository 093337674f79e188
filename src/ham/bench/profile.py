"""Where the op's time goes, function by function of the engine: what `perf` sees of a process that does nothing else.

`python -m ham.bench.profile LEAVES BATCH SECONDS` is that process.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from ham.bench.work import Trainer, Work
from ham.ops import native

PARTS = {
    "matrix products": r"product|outer|add_gradient|_gradient\(|reduce_",
    "gather and scatter": r"gather|scatter",
    "the objective": r"ham_objective",
    "an access: pairs, masks, WRITE's functions, the tape": r"attend_|update_|write_",
    "the controller: LSTM's functions, the tape": r"HardEpisode::|controller_|lstm_",
    "the first tree": r"Build::|embed_",
}
"""Functions of the engine by their names; the first that fits has it. The compiler may have put one into another."""
REST = "all else in the engine"


def parts(leaves: int, batch: int, seconds: float) -> tuple[dict[str, float], str]:
    """Shares of the engine's time, or none and why."""
    if seconds <= 0:
        return {}, "left out"
    perf = shutil.which("perf")
    if perf is None:
        return {}, "perf is not installed"
    engine = native.build_info().file.name
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "perf.data"
        numbers = map(str, (leaves, batch, seconds))
        program = [sys.executable, "-P", "-m", "ham.bench.profile", *numbers]
        record = [perf, "record", "-q", "-e", "cpu-clock", "-F", "1999", "-o", str(file), *program]
        report = [perf, "report", "-i", str(file), "--stdio", "--no-children", "--sort", "symbol"]
        try:
            subprocess.run(record, capture_output=True, check=True, timeout=60 + 20 * seconds)
            only = ["--dsos", engine, "--percentage", "relative"]
            told = subprocess.run([*report, *only], capture_output=True, text=True, check=True, timeout=60)
        except (subprocess.SubprocessError, OSError) as error:
            return {}, f"perf failed: {error}".splitlines()[0]
    return shares(told.stdout), "perf saw nothing of the engine"


def shares(report: str) -> dict[str, float]:
    """By part, from lines such as `12.34%  [.] ham::outer`; empty if there are none."""
    found = dict.fromkeys((*PARTS, REST), 0.0)
    for percent, symbol in re.findall(r"^\s*([\d.]+)%\s+\[.\] (.*\S)", report, re.MULTILINE):
        part = next((name for name, pattern in PARTS.items() if re.search(pattern, symbol)), REST)
        found[part] += float(percent) / 100
    return found if any(found.values()) else {}


def _main(leaves: str, batch: str, seconds: str) -> None:
    torch.set_num_threads(1)
    trainer = Trainer()
    work = Work.draw(np.random.default_rng(0), int(leaves), int(batch), full=True)
    end = time.perf_counter() + float(seconds)
    while time.perf_counter() < end:
        trainer.cost(work)


if __name__ == "__main__":
    _main(*sys.argv[1:])
