"""Compiled whole, exported, transformed: tests/ops/traced.py in a process without the tests' shape checks."""

import subprocess
import sys
from pathlib import Path

import pytest

from ham.ops import native

pytestmark = pytest.mark.skipif(not native.available(), reason=native.why_not() or "available")


@pytest.mark.parametrize("what", ["compile", "models", "export", "transforms", "operations"])
def test_traced(what):
    script = Path(__file__).with_name("traced.py")
    done = subprocess.run([sys.executable, str(script), what], capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    assert done.stdout.strip().endswith("all hold")
