"""Where there is no POSIX, as on Windows, plain PyTorch does all. What is missing there is taken away here.

This is not Windows: paths, consoles, and what PyTorch itself does there are untested.
"""

import subprocess
import sys

NOT_ON_WINDOWS = """
import os, signal, sys, types
import numpy, torch  # they have their own ways

torch.set_num_threads(1)
for name in ("fcntl", "grp", "posix", "pty", "pwd", "resource", "termios", "tty"):
    sys.modules[name] = None
for name in ("O_NONBLOCK", "O_NOFOLLOW", "fchmod", "geteuid", "getuid", "killpg", "sched_getaffinity"):
    delattr(os, name)
del signal.SIGKILL

locked = []
sys.modules["msvcrt"] = types.SimpleNamespace(LK_NBLCK=2, locking=lambda *call: locked.append(call))
"""
USE = """
import ham
from ham.cli import main
from ham.ops import native

assert native.why_not() == "the native engine needs a POSIX system"
assert ham.solve("sort", "7:1 3:9").answer == [(3, 9), (7, 1)]

memory = ham.HAM(features=3, query=4)
state, query = memory.init(torch.rand(2, 5, 3)), torch.rand(2, 4)
read = memory.attend(state, query)
memory.update(state, read, query)
read.log_probs.sum().backward()

small = "--data.batches 2 --data.validation 2 --schedule.finish 0".split()
assert main(["train", "reverse", *small, "--schedule.epochs", "1", "--out", "run"]) == 0
assert [words[1:] for words in locked] and all(words[1:] == (2, 1) for words in locked)
assert main(["evaluate", "run", "--leaves", "4", "--examples", "2"]) == 0
assert main(["solve", "sort", "7:1 3:9"]) == 0
print("done")
"""


def test_without_posix_plain_pytorch_does_all(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", NOT_ON_WINDOWS + USE], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("done\n")


def test_without_posix_everything_can_be_imported(tmp_path):
    every = """
import importlib, pkgutil, ham

for module in pkgutil.walk_packages(ham.__path__, "ham."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
"""
    done = subprocess.run([sys.executable, "-c", NOT_ON_WINDOWS + every], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
