"""Every write of a training run fails once: one line, nothing lost, and the run goes on to the same bits."""

from __future__ import annotations

import json
import shutil
import sys

import pytest
from tests.reliability.faults import preloaded


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the library is preloaded as Linux does it")
def test_every_write_fails_once(tmp_path):
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler")
    done = preloaded(compiler, tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["calls"] > 30
    assert found["faults"] == 3 * found["calls"]
    assert found["ended_in_one_line"] == 2 * found["calls"]
