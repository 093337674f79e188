"""Texts of strangers are shown and never obeyed, by terminals, pages and shells."""

from __future__ import annotations

import os
import subprocess

import pytest

from ham.core.text import markdown_code, markdown_text, shell_word, visible

NAMES = [
    "plain", "two words", "$(touch ran)", "`touch ran`", "; touch ran", "'", "''", '"', "\\",
    "-x", "a\nb", "\x1b]0;x\x07",
    "caf\udce9", "‮gnp.exe", "é", "*", "~", "!", "a\tb", "\U0001f600", "$'x'",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_a_shell_takes_the_word_for_itself(name, tmp_path):
    line = f"printf %s {shell_word(name)}"
    env = {**os.environ, "LC_ALL": "C.UTF-8"}
    done = subprocess.run(["bash", "-c", line], capture_output=True, cwd=tmp_path, env=env, check=True)
    assert done.stdout == os.fsencode(name)
    assert shell_word(name).isprintable()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", NAMES)
def test_nothing_hidden_is_left(name):
    assert visible(name).isprintable()
    assert markdown_text(name).isprintable()
    assert markdown_code(name).isprintable()


def test_markdown_shows_what_it_is_given():
    assert "<" not in markdown_text("<script>alert(1)</script><img src=x>")
    assert markdown_text("[x](javascript:alert(1))") == "\\[x\\](javascript:alert(1))"
    assert markdown_code("`<b>`") == "`` `<b>` ``"
