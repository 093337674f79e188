"""Building the engine: once for two who ask at once, again after damage, and a reason when it cannot be."""

from __future__ import annotations

import os
import subprocess
import sys
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
