"""Training, evaluation and the native engine give back what they take."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ham.ops import native

ROOT = Path(__file__).parents[2]
MEGABYTE = 1 << 20
# A leak of one float in a thousand episodes would pass; one of a hundred bytes an episode does not.
SLACK = 2 * MEGABYTE


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="measured by Linux's own figures")
@pytest.mark.parametrize(("backend", "episodes", "batches"), [("native", 10_000, 300), ("reference", 60, 10)])
def test_nothing_grows(backend, episodes, batches):
    if backend == "native" and not native.available():
        pytest.skip(native.why_not())
    leaves = 1 << 15 if backend == "native" else 1 << 4
    command = [sys.executable, "-m", "tests.reliability.memory", "--backend", backend]
    command += ["--episodes", episodes, "--batches", batches, "--leaves", leaves]
    done = subprocess.run(map(str, command), cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["episodes_grew_by"] < SLACK
    assert found["training_grew_by"] < SLACK
    assert found["evaluations_grew_by"] < SLACK
    if backend == "native":
        assert found["evaluation_peak"] < found["evaluation_documented"] + SLACK
