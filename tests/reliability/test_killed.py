"""A training that is killed again and again comes to the same bits."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(sys.platform != "linux", reason="forks a process that has PyTorch loaded")
def test_a_hundred_kills_change_no_bit():
    command = [sys.executable, "-m", "tests.reliability.kill", "--kills", "100"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["kills"] == 100
    assert found["runs_compared"] >= 2
    assert found["in_the_middle_of_a_write"] >= 5, "kills that miss every write would prove little"
