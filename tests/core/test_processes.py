"""A guarded program ends with who started it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ham.core.processes import guarded


def alive(pid: int) -> bool:
    """Whether a process runs; one that is only to be waited for does not."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def gone(pid: int) -> bool:
    until = time.monotonic() + 30
    while alive(pid) and time.monotonic() < until:
        time.sleep(0.02)
    return not alive(pid)


def test_it_tells_its_output_and_its_exit_code():
    with guarded(["sh", "-c", "echo hello; exit 3"], signal.SIGKILL, stdout=-1, text=True) as process:
        assert process.communicate()[0] == "hello\n"
    assert process.returncode == 3
    with guarded(["sh", "-c", "kill -9 $$"], signal.SIGINT) as process:
        assert process.wait() == 128 + 9


def test_what_cannot_be_run_is_127():
    with guarded(["/no/such/program"], signal.SIGKILL, stderr=-1, text=True) as process:
        assert process.communicate()[1] == "/no/such/program could not be run: No such file or directory\n"
    assert process.returncode == 127


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGINT])
def test_it_ends_with_the_block_and_takes_its_own_children_along(ending):
    words = [
        sys.executable,
        "-c",
        "import subprocess; subprocess.run(['sh', '-c', 'echo $$; exec sleep 99'])",
    ]
    with guarded(words, ending, stdout=-1, stderr=-1, text=True) as process:
        grandchild = int(process.stdout.readline())
        assert alive(grandchild)
    assert gone(grandchild)


def test_it_can_be_told_to_end():
    with guarded(["sh", "-c", "echo $$; exec sleep 99"], signal.SIGINT, stdout=-1, text=True) as process:
        child = int(process.stdout.readline())
        process.terminate()
        assert process.wait() == 128 + signal.SIGINT
    assert gone(child)


def test_who_has_no_patience_leaves_it_to_its_guard(tmp_path):
    saving = f"trap 'while [ ! -e {tmp_path}/saved ]; do sleep 0.05; done; exit' INT; echo $$; sleep 99"
    with guarded(["sh", "-c", saving], signal.SIGINT, 0.1, stdout=-1, text=True) as process:
        child = int(process.stdout.readline())
    assert alive(child)
    (tmp_path / "saved").touch()
    assert gone(child)
    process.wait()


def test_it_ends_when_its_starter_is_killed():
    code = (
        "import signal, sys\nfrom ham.core.processes import guarded\n"
        "with guarded(['sh', '-c', 'echo $$; exec sleep 99'], signal.SIGKILL) as process: process.wait()"
    )
    starter = subprocess.Popen([sys.executable, "-c", code], stdout=-1, text=True, env=os.environ)
    child = int(starter.stdout.readline())
    assert alive(child)
    starter.kill()
    starter.wait()
    starter.stdout.close()
    assert gone(child)


def test_none_of_those_that_start_others_all_the_time_is_left():
    """Programs that start one after the other: whoever looked only once would miss some."""
    program = """
import subprocess, sys, time
from ham.core.processes import kill_descendants
starting = "import subprocess, time\\nwhile True: subprocess.Popen(['sleep', '31.4159']); time.sleep(0.001)"
busy = [subprocess.Popen([sys.executable, "-I", "-S", "-c", starting]) for _ in range(4)]
time.sleep(0.5)
kill_descendants()
print(*(process.poll() for process in busy))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "-9 -9 -9 -9\n", done.stderr
    assert not [file for file in Path("/proc").glob("[0-9]*/cmdline") if b"31.4159" in words(file)]


def words(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:
        return b""


@pytest.mark.parametrize("end", ["pass", "os._exit(3)", "os.kill(os.getpid(), 9)", "kill_descendants()"])
def test_a_passing_folder_passes_however_its_process_ends(tmp_path, end):
    program = f"""
import os, pathlib, sys
from ham.core.processes import kill_descendants, passing_folder
with passing_folder(sys.argv[1]) as folder:
    pathlib.Path(folder, "file").touch()
    {end}
"""
    (folder := tmp_path / "passing").mkdir()
    subprocess.run([sys.executable, "-c", program, folder], timeout=60)
    until = time.monotonic() + 30
    while folder.exists() and time.monotonic() < until:
        time.sleep(0.02)
    assert not folder.exists()
