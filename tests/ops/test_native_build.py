"""Building the engine: once for two who ask at once, again after damage, and a reason when it cannot be."""

from __future__ import annotations

import fcntl
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ham.ops import native
from ham.ops.native import compiler, library
from ham.ops.native.library import loaded

pytestmark = pytest.mark.skipif(not native.available(), reason=native.why_not() or "available")

# Small sources build in a fraction of a second; what is tested is the building, not the engine.
SMALL = 'extern "C" int answer() { return 42; }\n'


@pytest.fixture
def small(tmp_path, monkeypatch) -> Path:
    sources = tmp_path / "csrc"
    sources.mkdir()
    (sources / "small.cpp").write_text(SMALL)
    monkeypatch.setattr(compiler, "SOURCES", sources)
    monkeypatch.setenv("HAM_CACHE", str(tmp_path / "cache"))
    return sources


def test_the_first_time_says_that_it_builds_and_how_long_that_takes(small, caplog):
    compiler.build()
    assert caplog.messages == [
        "building the native engine for this CPU, once: about half a minute on two idle cores"
    ]
    caplog.clear()
    compiler.build()
    assert not caplog.messages


def test_the_second_time_it_is_found_built(small):
    first, second = compiler.build(), compiler.build()
    assert not first.cached
    assert second.cached
    assert first.file == second.file
    assert first.file.parent == Path(os.environ["HAM_CACHE"])


def test_other_sources_flags_or_cpu_are_another_file(small, monkeypatch):
    files = {compiler.build().file}
    (small / "small.cpp").write_text(SMALL + "// changed\n")
    files.add(compiler.build().file)
    monkeypatch.setattr(compiler, "FLAGS", (*compiler.FLAGS, "-DOTHER"))
    files.add(compiler.build().file)
    monkeypatch.setattr(compiler, "_cpu", lambda: ("another",))
    files.add(compiler.build().file)
    assert len(files) == 4


@pytest.mark.parametrize(
    "damage", [lambda data: data[: len(data) // 2], lambda data: data[:-1] + b"\0x", lambda _: b""]
)
def test_a_damaged_library_is_built_again(small, damage):
    file = compiler.build().file
    good = file.read_bytes()
    file.write_bytes(damage(good))
    again = compiler.build()
    assert not again.cached
    assert again.file.read_bytes()[:4] == good[:4]
    assert compiler.build().cached


def test_a_lost_note_is_no_trust(small):
    file = compiler.build().file
    file.with_suffix(".json").write_text("{")
    assert not compiler.build().cached


def test_no_compiler_is_one_clear_line(small, monkeypatch):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(
        compiler.BuildError, match="no C\\+\\+ compiler was found; install g\\+\\+ or clang\\+\\+"
    ):
        compiler.build()
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(compiler.BuildError, match="CXX=no-such-compiler was not found"):
        compiler.build()


def test_a_build_for_another_kind_of_processor(small, monkeypatch):
    here = compiler.build()
    monkeypatch.setenv("HAM_MARCH", "x86-64")
    if platform.machine() != "x86_64":
        pytest.skip("a name of x86-64's")
    other = compiler.build()
    assert other.file != here.file
    assert "-march=x86-64" in other.flags
    assert "-march=native" not in other.flags


def test_an_old_torch_is_one_clear_line(small, monkeypatch):
    monkeypatch.setattr(compiler.torch, "__version__", "2.12.1+cpu")
    with pytest.raises(compiler.BuildError, match=r"needs PyTorch 2\.13 or later, and this is 2\.12\.1\+cpu"):
        compiler.build()


def test_a_failed_build_says_the_first_error(small):
    (small / "small.cpp").write_text("int answer( { }\n")
    with pytest.raises(compiler.BuildError, match=r"failed: .*small.cpp:1:.*error") as failure:
        compiler.build()
    assert "\n" not in str(failure.value)


def test_a_cache_that_cannot_be_written_says_so(small, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HAM_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(compiler.BuildError, match="set HAM_CACHE to another folder"):
        compiler.build()


class TestStrangers:
    """Nobody else's code is loaded."""

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
    @pytest.mark.parametrize("what", ["folder", "file"])
    def test_a_cache_of_another_user(self, small, what):
        file = compiler.build().file
        os.chown(file if what == "file" else file.parent, 12345, -1)
        with pytest.raises(compiler.BuildError, match="belongs to another user; set HAM_CACHE"):
            compiler.build()

    @pytest.mark.parametrize("what", ["folder", "file"])
    def test_a_cache_that_everybody_may_write(self, small, what):
        file = compiler.build().file
        (file if what == "file" else file.parent).chmod(0o777)
        with pytest.raises(compiler.BuildError, match="may be written by everybody; set HAM_CACHE"):
            compiler.build()

    def test_a_new_cache_is_for_its_owner_alone(self, small):
        assert compiler.build().file.parent.stat().st_mode & 0o777 == 0o700

    def test_headers_in_the_current_folder(self, small, tmp_path, monkeypatch):
        """An empty element of CPATH is the folder that the compiler runs in."""
        (small / "small.cpp").write_text(f"#include <cstdint>\n{SMALL}")
        (tmp_path / "cstdint").write_text("#error a stranger's")
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("CPATH", ":/usr/local/include")
        monkeypatch.setenv("HAM_CACHE", "cache")
        assert compiler.build().file.parent == tmp_path / "cache"

    def test_a_lock_that_is_a_link(self, small, tmp_path):
        file = compiler.build().file
        (tmp_path / "thesis").write_text("years of work")
        file.with_suffix(".lock").unlink()
        file.with_suffix(".lock").symlink_to(tmp_path / "thesis")
        file.unlink()
        with pytest.raises(compiler.BuildError, match="lock is not an ordinary file"):
            compiler.build()
        assert (tmp_path / "thesis").read_text() == "years of work"


@pytest.fixture
def wrapper(tmp_path, monkeypatch):
    """A compiler of one's own: a shell script before the real one."""

    def make(script: bytes) -> Path:
        path = tmp_path / "compiler"
        real = shutil.which("g++") or shutil.which("clang++")
        path.write_bytes(b"#!/bin/sh\n" + script + f'\nexec {real} "$@"\n'.encode())
        path.chmod(0o755)
        monkeypatch.setenv("CXX", str(path))
        return path

    return make


def test_a_compiler_that_speaks_no_utf8(small, wrapper):
    wrapper(b'[ "$1" = --version ] && printf "caf\\351 1.0\\n" && exit 0')
    assert compiler.build().version == "caf\ufffd 1.0"


def test_a_compiler_that_hangs_is_named_and_given_up(small, wrapper, monkeypatch, caplog):
    path = wrapper(b"[ $1 = --version ] || sleep 99")
    monkeypatch.setattr(compiler, "SECONDS_TO_BUILD", 2.0)
    monkeypatch.setattr(compiler, "SECONDS_IN_SILENCE", 0.1)
    with pytest.raises(compiler.BuildError, match=f"gave up waiting for the C.. compiler {path} after 2 s"):
        compiler.build()
    assert f"waiting for the C++ compiler {path}, " in caplog.text


def test_a_lock_that_is_held_is_named_and_given_up(small, monkeypatch, caplog):
    file = compiler.build().file
    file.unlink()
    monkeypatch.setattr(compiler, "SECONDS_TO_BUILD", 1.0)
    monkeypatch.setattr(compiler, "SECONDS_IN_SILENCE", 0.1)
    with file.with_suffix(".lock").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(compiler.BuildError, match="gave up waiting for another process that builds"):
            compiler.build()
    assert (
        f"waiting for another process that builds the engine and holds {file.with_suffix('.lock')}"
        in caplog.text
    )


@pytest.fixture
def slow(small, wrapper, tmp_path, monkeypatch) -> Path:
    """A compiler that hangs at each of two sources side by side, and the folder of its processes' numbers."""
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    (small / "second.cpp").write_text("int second() { return 2; }\n")
    (tmp_path / "pids").mkdir()
    wrapper(f"[ $1 = --version ] || {{ echo > {tmp_path}/pids/$$; sleep 99; }}".encode())
    return tmp_path / "pids"


def gone(pids: Path) -> bool:
    return not any(Path(f"/proc/{pid.name}/cmdline").exists() for pid in pids.iterdir())


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGINT])
def test_ended_while_building_it_leaves_no_compiler_and_the_next_build_tidies(small, slow, ending):
    program = (
        "import os, sys; from pathlib import Path; from ham.ops.native import compiler;"
        "os.cpu_count = lambda: 2; compiler.SOURCES = Path(sys.argv[1]); compiler.build()"
    )
    process = subprocess.Popen([sys.executable, "-c", program, str(small)], stderr=subprocess.DEVNULL)
    wait_for(lambda: len(list(slow.iterdir())) == 2)
    process.send_signal(ending)
    process.wait(60)
    wait_for(lambda: gone(slow))
    cache = Path(os.environ["HAM_CACHE"])
    assert [left for left in cache.iterdir() if left.is_dir()] or ending != signal.SIGKILL
    path = Path(os.environ["CXX"])
    path.write_bytes(path.read_bytes().replace(b"sleep 99", b"true"))
    assert not compiler.build().cached
    assert not [left for left in cache.iterdir() if left.is_dir()]


def test_a_source_that_fails_ends_the_compilers_of_the_others(small, slow):
    path = Path(os.environ["CXX"])
    path.write_bytes(
        path.read_bytes().replace(b"sleep 99", b'case "$*" in *small.cpp*) exit 3;; esac; sleep 99')
    )
    with pytest.raises(compiler.BuildError, match="compiler failed: no message"):
        compiler.build()
    wait_for(lambda: gone(slow))


def wait_for(condition):
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.05)


def test_without_a_home_there_is_a_reason(small, monkeypatch):
    for name in ("HAM_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", lambda: (_ for _ in ()).throw(RuntimeError("no home")))
    with pytest.raises(compiler.BuildError, match="there is no home folder for the cache; set HAM_CACHE"):
        compiler.build()


def test_a_relative_cache_folder_is_not_obeyed(monkeypatch):
    """It would be the current folder's."""
    monkeypatch.delenv("HAM_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "cache")
    assert compiler.cache_folder() == Path.home() / ".cache" / "ham"


def test_the_cache_is_in_the_users_cache_folder(monkeypatch):
    monkeypatch.delenv("HAM_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert compiler.cache_folder() == Path("/somewhere/ham")


def test_two_processes_at_once_build_once(small):
    program = (
        "import sys; from pathlib import Path; from ham.ops.native import compiler;"
        "compiler.SOURCES = Path(sys.argv[1]); print(compiler.build().cached)"
    )
    command = [sys.executable, "-c", program, str(small)]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = [process.communicate(timeout=120)[0].strip() for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert sorted(said) == ["False", "True"]


def test_why_not_is_remembered_and_asked_for_in_vain_is_an_error(monkeypatch):
    monkeypatch.setattr(library, "_engine", None)
    monkeypatch.setattr(library, "_failure", None)
    monkeypatch.setattr(
        compiler, "find_compiler", lambda: (_ for _ in ()).throw(compiler.BuildError("none here"))
    )
    assert not native.available()
    assert native.why_not() == "none here"
    with pytest.raises(compiler.BuildError, match="none here"):
        loaded()


def test_the_doctor_can_tell_how_it_was_built():
    info = native.build_info()
    assert info.file.exists()
    assert info.seconds > 0
    assert "-O3" in info.flags
    assert info.compiler
    assert info.version
