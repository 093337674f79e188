"""A search that is stopped ends at once, and takes what it started along."""

import os
import subprocess
import sys
import time

STOPPED = """
import subprocess, sys
from ham.search import engine
started = subprocess.Popen(["sh", "-c", "sleep 99 & echo $!; wait"], stdout=-1, text=True)
print(started.pid, started.stdout.readline().strip())
engine._leave_at_once()
print("reported")
sys.exit(1)
"""


def gone(pid: int) -> bool:
    """Whether a process has ended, if only just."""
    until = time.monotonic() + 30
    while time.monotonic() < until:
        try:
            with open(f"/proc/{pid}/stat") as file:
                if file.read().rpartition(")")[2].split()[0] == "Z":
                    return True
        except FileNotFoundError:
            return True
        time.sleep(0.02)
    return False


def test_what_was_started_is_killed_and_what_is_left_to_say_is_said():
    done = subprocess.run([sys.executable, "-c", STOPPED], stdout=-1, text=True, env=os.environ, check=False)
    pids, said = done.stdout.splitlines()
    assert (done.returncode, said) == (130, "reported")
    assert all(gone(int(pid)) for pid in pids.split())
