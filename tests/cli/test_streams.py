"""Odd terminals: closed streams, ASCII alone, no home, an interrupt that nobody notices, no memory left."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import torch

from ham import cli
from ham.cli import Command, main

HAM = f"{sys.executable} -m ham"


def shell(line: str, **environment: str) -> subprocess.CompletedProcess:
    env = {**os.environ, "HAM_BACKEND": "reference", **environment}
    return subprocess.run(["sh", "-c", line], stdin=-3, stdout=-1, stderr=-1, env=env, check=False)


def test_closed_output():
    done = shell(f"{HAM} tasks >&-")
    assert (done.returncode, done.stderr) == (0, b"")


def test_everything_closed():
    assert shell(f"{HAM} solve reverse '1 2' >&- 2>&- <&-").returncode == 0


def test_closed_input():
    done = shell(f"{HAM} solve reverse --file - <&-")
    assert (done.returncode, done.stderr) == (2, b"ham: standard input holds no question\n")


def test_a_full_standard_error():
    """What cannot be said changes no exit code."""
    done = shell(f"echo 1 2 | {HAM} solve reverse --file - 2>/dev/full")
    assert (done.returncode, done.stdout) == (0, "1 2 → 2 1  (right)\n".encode())
    assert shell(f"{HAM} nosuch 2>/dev/full").returncode == 2
    assert shell(f"{HAM} tasks >/dev/full 2>/dev/full").returncode == 2


def test_a_standard_error_that_nobody_reads():
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as unread:
        done = subprocess.run([sys.executable, "-m", "ham", "nosuch"], stderr=unread, check=False)
    assert done.returncode == 2


def test_a_terminal_that_knows_ascii_alone():
    done = shell(f"{HAM} solve reverse '1 2'", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"1 2 -> 2 1" in done.stdout
    for words in ("tasks", "--help", "evaluate reverse --examples 2 --leaves 2"):
        done = shell(f"{HAM} {words}", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
        assert done.returncode == 0, done.stderr
        assert done.stdout.isascii()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become somebody else")
def test_a_user_without_a_name_and_a_home():
    """As in a container started with `--user`."""
    code = (
        "import os, sys\nfrom ham.cli import main\n"
        "import ham.cli.doctor, ham.cli.solve, ham.use.solve, ham.tasks.reverse\n"
        "os.setgroups([]), os.setgid(54321), os.setuid(54321)\n"
        "sys.exit(main(['doctor', '--no-speed']) or main(['solve', 'reverse', '1 2']))"
    )
    with tempfile.TemporaryDirectory() as here:
        Path(here).chmod(0o755)
        env = {name: value for name, value in os.environ.items() if name in ("PATH", "PYTHONPATH")}
        words = [sys.executable, "-c", code]
        done = subprocess.run(words, stdout=-1, stderr=-1, env=env, cwd=here, text=True, check=False)
    assert "Traceback" not in done.stderr
    assert done.returncode == 0, done.stderr
    assert "there is no home folder for the cache; set HAM_CACHE to a folder" in " ".join(done.stdout.split())
    assert "→ 2 1  (right)" in done.stdout


BUSY = """
import hashlib, sys
from ham import cli
def busy(argv):
    print("begun", flush=True)
    hashlib.pbkdf2_hmac("sha256", b"", b"", 2**31 - 1)  # hours, in one call that Python cannot interrupt
cli.busy = busy
cli.COMMANDS["busy"] = cli.Command("ham.cli:busy", "", raw=True)
sys.exit(cli.main(["busy"]))
"""


STOPS = pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])


@STOPS
def test_ctrl_c_is_honoured_in_the_middle_of_a_long_call(stop):
    process = subprocess.Popen([sys.executable, "-c", BUSY], stdout=-1, stderr=-1, text=True)
    assert process.stdout.readline() == "begun\n"
    process.send_signal(stop)
    _, complaint = process.communicate(timeout=60)
    assert (process.returncode, complaint) == (130, "ham: interrupted\n")


IN_DEL = """
    import time
    class Dropped:
        def __del__(self): print("begun", flush=True); time.sleep(99)
    Dropped()
    time.sleep(99)
"""
IN_AN_IMPORT = """
    import time
    try: import slow
    except BaseException: pass
    time.sleep(99)
"""


@pytest.mark.parametrize("doing", [IN_DEL, IN_AN_IMPORT])
def test_ctrl_c_is_honoured_where_exceptions_are_dropped(doing, tmp_path):
    (tmp_path / "slow.py").write_text("import time; print('begun', flush=True); time.sleep(99)")
    words = [sys.executable, "-c", BUSY.replace('    print("begun", flush=True)', doing)]
    process = subprocess.Popen(words, stdout=-1, stderr=-1, text=True, cwd=tmp_path)
    assert process.stdout.readline() == "begun\n"
    process.send_signal(signal.SIGINT)
    _, complaint = process.communicate(timeout=60)
    assert (process.returncode, complaint) == (130, "ham: interrupted\n")


@STOPS
def test_what_a_command_does_when_it_noticed_is_not_cut_short(stop):
    slow = BUSY.replace(
        'print("begun", flush=True)',
        "import time\n    try: print('begun', flush=True); time.sleep(99)\n    finally: time.sleep(3); print('saved')",
    )
    process = subprocess.Popen([sys.executable, "-c", slow], stdout=-1, stderr=-1, text=True)
    assert process.stdout.readline() == "begun\n"
    process.send_signal(stop)
    said, complaint = process.communicate(timeout=60)
    assert (process.returncode, said, complaint) == (130, "saved\n", "ham: interrupted\n")


def test_a_command_in_the_background_of_a_script_heeds_sigterm():
    """There Ctrl-C is ignored from the start."""
    words = ["sh", "-c", 'trap "" INT; exec "$0" -c "$1"', sys.executable, BUSY]
    process = subprocess.Popen(words, stdout=-1, stderr=-1, text=True)
    assert process.stdout.readline() == "begun\n"
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)
    _, complaint = process.communicate(timeout=60)
    assert (process.returncode, complaint) == (130, "ham: interrupted\n")


def test_handlers_are_as_before():
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    for _ in range(3):
        assert main(["--version"]) == 0
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
    assert signal.set_wakeup_fd(-1) == -1


def raised(error):
    raise error


@pytest.mark.parametrize(
    "much",
    [
        lambda: torch.empty(1 << 55),
        lambda: bytearray(1 << 60),
        lambda: raised(MemoryError()),
        lambda: raised(RuntimeError("can't start new thread")),
    ],
)
def test_too_little_memory_is_one_line(monkeypatch, capsys, much):
    monkeypatch.setattr(cli, "much", lambda argv: much() and 0, raising=False)
    monkeypatch.setitem(cli.COMMANDS, "much", Command("ham.cli:much", "", raw=True))
    assert main(["much"]) == 2
    complaint = capsys.readouterr().err
    assert re.fullmatch("ham: not enough memory: .+\n", complaint)


def test_any_other_error_keeps_its_traceback(monkeypatch):
    def wrong(argv):
        raise RuntimeError("a bug")

    monkeypatch.setattr(cli, "wrong", wrong, raising=False)
    monkeypatch.setitem(cli.COMMANDS, "wrong", Command("ham.cli:wrong", "", raw=True))
    with pytest.raises(RuntimeError, match="a bug"):
        main(["wrong"])
