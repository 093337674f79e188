"""Files are replaced as a whole, keep their modes, and are never somebody else's."""

from __future__ import annotations

import os
import re
import stat
from functools import partial
from pathlib import Path

import pytest

import ham
from ham.core.errors import InputError
from ham.core.files import last_line, open_lock, open_log, read_json, require_room, write_whole


@pytest.fixture
def thesis(tmp_path):
    """A file outside of the folder that a stranger's link points to."""
    file = tmp_path / "thesis.txt"
    file.write_text("years of work")
    (tmp_path / "run").mkdir()
    yield file
    assert file.read_text() == "years of work"


def test_a_new_file_has_the_usual_mode_and_an_old_one_keeps_its_own(tmp_path):
    mask = os.umask(0o022)
    try:
        write_whole(tmp_path / "new", b"1")
    finally:
        os.umask(mask)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o644
    (tmp_path / "new").chmod(0o600)
    write_whole(tmp_path / "new", b"2")
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o600
    assert (tmp_path / "new").read_bytes() == b"2"
    assert os.listdir(tmp_path) == ["new"]


def test_a_link_is_not_written_through(thesis):
    link = thesis.parent / "run" / "page.html"
    link.symlink_to(thesis)
    with pytest.raises(InputError, match=r"page\.html: what is there is not an ordinary file"):
        write_whole(link, b"page")
    assert link.is_symlink()


def test_nor_is_one_that_waits_where_the_temporary_file_will_be(thesis):
    folder = thesis.parent / "run"
    (folder / f".page.html.{os.getpid()}").symlink_to(thesis)
    write_whole(folder / "page.html", b"page")
    assert (folder / "page.html").read_bytes() == b"page"


@pytest.mark.parametrize("kind", [stat.S_IFIFO, stat.S_IFCHR, stat.S_IFBLK])
def test_what_is_no_ordinary_file_is_left_alone(tmp_path, kind):
    node = tmp_path / "node"
    try:
        os.mknod(node, kind | 0o600, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("making a device is not allowed here")
    before = node.lstat()
    with pytest.raises(InputError, match="not an ordinary file"):
        write_whole(node, b"page")
    assert node.lstat() == before


def test_a_folder_is_no_file(tmp_path):
    with pytest.raises(InputError, match="not an ordinary file"):
        write_whole(tmp_path, b"page")


@pytest.mark.parametrize("opened", [open_lock, open_log])
def test_a_lock_or_a_log_follows_no_link_and_waits_for_no_pipe(thesis, opened):
    path = thesis.parent / "run" / "file"
    device = partial(path.symlink_to, "/dev/zero")
    for make in (partial(path.symlink_to, thesis), device, partial(os.mkfifo, path), path.mkdir):
        make()
        with pytest.raises(InputError, match="is not an ordinary file"):
            opened(path)
        path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()


def test_a_log_grows_and_tells_its_last_line(tmp_path):
    with open_log(tmp_path / "log") as log:
        assert last_line(log) == ""
        log.write(b"a" * (1 << 20) + b"\nfirst\n")
    with open_log(tmp_path / "log") as log:
        assert last_line(log) == "first"
        log.write(b"\xffsecond\n\n")
        assert last_line(log) == "\ufffdsecond"
    assert (tmp_path / "log").stat().st_size == (1 << 20) + len("\nfirst\n") + len("?second\n\n")


def test_a_name_that_comes_twice_is_found_among_many():
    text = ",".join(f'"{number}":0' for number in range(200_000))
    with pytest.raises(InputError, match="it has '7' twice"):
        read_json(f'{{{text},"7":0}}', "a text")


def test_a_lock_that_is_another_name_of_a_file_leaves_it_whole(thesis):
    lock = thesis.parent / "run" / ".lock"
    lock.hardlink_to(thesis)
    open_lock(lock).close()


def test_every_file_is_written_whole():
    """Nothing else in the package writes one; a compiler's output is renamed likewise, a log only grows."""
    source = Path(ham.__file__).parent
    other_ways = re.compile(r"""\.write_(text|bytes)\(|savefig\(|open\([^)]*["'][rwax]?b?[+wax]b?["']""")
    found = {
        f"{path.relative_to(source)}: {line.strip()}"
        for path in source.glob("**/*.py")
        for line in path.read_text("utf-8").splitlines()
        if other_ways.search(line)
    }
    assert {line.partition(":")[0] for line in found} == {
        "ops/native/compiler.py",  # inside a folder of its own
        "ops/native/prebuilt.py",  # likewise
        "view/drawing.py",  # into memory
    }, found


def test_room_is_asked_for_before_the_work(tmp_path):
    require_room(tmp_path / "page.html")
    require_room(tmp_path / "a" / "b", folder=True)
    assert not list(tmp_path.iterdir())
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("file")
    for path, folder, said in (
        (tmp_path / "no" / "page.html", False, "there is no folder .*no to write page.html into"),
        (tmp_path / "file" / "page.html", False, "file is not a folder"),
        (tmp_path / "file" / "out", True, "file is not a folder"),
        (tmp_path / "link", False, "not an ordinary file"),
        (Path("/proc/page.html"), False, "cannot write /proc/page.html"),
        (Path("/proc/out"), True, "cannot write /proc/out"),
    ):
        with pytest.raises(InputError, match=said):
            require_room(path, folder=folder)
