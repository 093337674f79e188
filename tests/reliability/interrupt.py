"""Ctrl-C in every command that lasts, at several moments: how long it takes to end.

    python -m tests.reliability.interrupt [COMMAND ...]

A moment is told in seconds of the processor that the command has had, with all that it started: while it imports,
while it begins, in the middle. The last figure, the processor's time from Ctrl-C on, is the same on a busy machine.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import ham

MOMENTS = (0.5, 1.2, 4.0)
SECONDS_AT_MOST = 60.0
"""A command may wait for others, whose time is not its own."""
LAST_MOMENT = 0.3
"""Seconds of the processor in which a command that is not ended by Ctrl-C had only its own end before it."""
PRETRAINED = Path(ham.__file__).parent / "pretrained"
TALL = ("--data.start", "4096", "--data.leaves", "4096", "--data.batch", "16")
COMMANDS: dict[str, tuple[str, ...]] = {
    "train": ("train", "reverse"),
    "train in tall trees": ("train", "reverse", *TALL),
    "evaluate": ("evaluate", "reverse", "--leaves", "4194304", "--examples", "1"),
    "stress": ("stress", "sort", "--examples", "2000"),
    "probe": ("probe", "sort", "--leaves", "65536", "--examples", "200"),
    "solve": ("solve", "sort", "--file", "questions.txt"),
    "view": ("view", "sort", "--no-open"),
    "trace": ("trace", "sort", "7:1 3:9 " * 400),
    "plot": ("plot", str(PRETRAINED / "sort")),
    "tune": ("tune", "reverse", "--trials", "2", "--workers", "1"),
    "sweep": ("sweep", "reverse", "--workers", "1"),
    "reproduce": ("reproduce",),
    "reproduce --train": ("reproduce", "--train", "--task", "reverse", "--model", "lstm+ham"),
    "bench": ("bench", "--quick"),
    "doctor": ("doctor",),
}


@dataclass(frozen=True)
class End:
    """How a command ended after Ctrl-C."""

    seconds: float
    processor: float
    """Seconds of it from Ctrl-C on, of the command itself."""
    code: int
    said: str


def interrupted(words: tuple[str, ...], moment: float) -> End | None:
    """Start a command, press Ctrl-C after so many seconds of the processor; None if it had done its work by then."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as said:
        (Path(folder) / "questions.txt").write_text(("7:1 3:9 " * 32 + "\n") * 20_000)
        # What ignores it hands that on; what handles it does not.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "ham", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=said,
            cwd=folder,
            start_new_session=True,  # as a terminal does, Ctrl-C reaches everybody in it
        )
        signal.signal(signal.SIGINT, before)
        latest = time.monotonic() + SECONDS_AT_MOST
        while process.poll() is None and sum((had := _processor(process.pid)).values()) < moment:
            if time.monotonic() > latest:
                break
            time.sleep(0.02)
        if process.returncode is not None or not _listens(process.pid):
            process.wait()
            return None
        pressed = time.monotonic()
        os.killpg(process.pid, signal.SIGINT)
        _, status, used = os.wait4(process.pid, 0)
        seconds = time.monotonic() - pressed
        process.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        processor = max(used.ru_utime + used.ru_stime - had[process.pid], 0.0)
        if process.returncode == 0 and processor < LAST_MOMENT:
            return None
        return End(seconds, processor, process.returncode, said.read().decode())


def _listens(pid: int) -> bool:
    """Whether a process handles Ctrl-C: Python does not any more while it clears up at its end."""
    with suppress(OSError):
        handled = re.search(r"SigCgt:\s*(\w+)", Path(f"/proc/{pid}/status").read_text())
        return handled is not None and bool(int(handled[1], 16) >> (signal.SIGINT - 1) & 1)
    return False


def _processor(session: int) -> dict[int, float]:
    """Seconds that the processes of a session have had of the processor so far."""
    had = {}
    for file in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it may be gone by now
            words = file.read_text().rpartition(")")[2].split()
            if int(words[3]) == session:
                had[int(file.parent.name)] = (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
    return had


def main(names: list[str]) -> int:
    """Print a row for each command and moment; 1 if one was not ended by Ctrl-C."""
    missed = 0
    print("| command | processor seconds before | seconds to the end | of the processor | exit code |")
    print("|---|---|---|---|---|")
    for name in names or COMMANDS:
        for moment in MOMENTS:
            if (end := interrupted(COMMANDS[name], moment)) is None:
                continue
            missed += end.code not in (130, -signal.SIGINT) or "Traceback" in end.said
            print(f"| {name} | {moment} | {end.seconds:.1f} | {end.processor:.1f} | {end.code} |", flush=True)
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
