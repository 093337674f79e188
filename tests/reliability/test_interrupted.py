"""Ctrl-C ends every command with a line."""

import signal
import sys

import pytest
from tests.reliability.interrupt import COMMANDS, interrupted

WITHOUT_RAY = [name for name in COMMANDS if name not in ("tune", "sweep")]


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.parametrize("name", WITHOUT_RAY)
def test_ctrl_c_ends_it_with_a_line(name):
    end = interrupted(COMMANDS[name], moment=1.5)
    if end is None:
        pytest.skip("it had ended before")
    assert end.code in (130, -signal.SIGINT), end.said  # a shell calls both 130
    assert "Traceback" not in end.said
    assert "interrupted" in end.said or "continue with" in end.said
