"""`ham view` and `ham trace` from Python: what they write, and what they refuse."""

import json
from pathlib import Path

import pytest

from ham import tasks
from ham.cli.trace import trace
from ham.cli.view import view
from ham.config import Architecture, Run
from ham.core.errors import InputError
from ham.runs import save_checkpoint
from ham.use.trace import Trace
from ham.view.watch import Page, shipped


@pytest.fixture
def checkpoint(untrained, tmp_path):
    """A sort model of one's own."""
    trained = next(trained for trained in untrained if trained.task.name == "sort")
    path = tmp_path / "own.safetensors"
    save_checkpoint(path, trained.run, trained.model.state_dict())
    return str(path)


def test_view_writes_one_file(checkpoint, tmp_path, capsys):
    out = tmp_path / "page.html"
    view("sort", "3:1 2:2", out=out, no_open=True, model=checkpoint)
    assert capsys.readouterr().out.strip() == str(out)
    text = out.read_text("utf-8")
    start = json.loads(text.split('id="data">')[1].split("</script>")[0])["start"]
    assert start == {"task": "sort", "input": "3:1 2:2"}
    assert "src=" not in text.split("<script")[0]


def test_a_page_that_cannot_be_written_leaves_no_folder(tmp_path, monkeypatch):
    def full(path, content):
        raise InputError(f"cannot write {path}: no space left")

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("ham.view.watch.write_whole", full)
    with pytest.raises(InputError, match=r"ham.html: no space left"):
        Page("", None).save()
    assert not list(tmp_path.iterdir())


def test_view_refuses_what_it_cannot_show(checkpoint, tmp_path, monkeypatch):
    def viewed(*args, **more):
        view(*args, no_open=True, out=tmp_path / "page.html", **more)

    with pytest.raises(InputError, match="was trained on sort, not on merge"):
        viewed("merge", model=checkpoint)
    with pytest.raises(InputError, match="no task is named 'sorting'"):
        viewed("sorting")
    with pytest.raises(InputError, match="key 1"):
        viewed("sort", "99:1", model=checkpoint)
    with pytest.raises(InputError, match="1,024 rows"):
        viewed("sort", "1:1 " * 1025, model=checkpoint)
    with pytest.raises(InputError, match="there is no folder"):
        view("sort", no_open=True, out=tmp_path / "no" / "page.html", model=checkpoint)
    monkeypatch.setattr("ham.view.watch.shipped", lambda: [])
    with pytest.raises(InputError, match="no model is shipped"):
        viewed()


def test_view_shows_a_task_of_ones_own(tmp_path, monkeypatch):
    """One that the page cannot read: it comes as traces of the question asked and of others."""
    path = Path(__file__).parents[2] / "examples" / "maximum.py"
    task = f"{path}:Maximum"
    architecture = Architecture()
    run = Run(task, architecture)
    save_checkpoint(tmp_path / "own.safetensors", run, architecture.build(tasks.get(task)).state_dict())
    out = tmp_path / "page.html"
    own = {"out": out, "no_open": True, "model": str(tmp_path / "own.safetensors")}
    view(task, " 3  17 4", **own)
    data = json.loads(out.read_text("utf-8").split('id="data">')[1].split("</script>")[0])
    assert data["start"] == {"task": "maximum", "input": "3 17 4"}
    [given] = data["own"]
    assert (given["name"], given["summary"], given["trained_on"]) == (
        "maximum",
        "the largest of 5-bit numbers",
        32,
    )
    assert given["traces"][0]["text"] == "3 17 4"
    assert {trace["leaves"] for trace in given["traces"]} == {4, 8, 16, 32}
    with pytest.raises(InputError, match="whole number"):
        view(task, "3 x", **own)
    with pytest.raises(InputError, match="no model of maximum is shipped"):
        view(task, no_open=True)


def test_trace_prints_lines_or_json(checkpoint, capsys):
    trace("sort", "3:1 2:2", model=checkpoint)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "sort, 4 leaves: 3:1 2:2"
    assert len(lines) == 1 + 3 + 1
    trace("sort", "3:1 2:2", json=True, model=checkpoint)
    assert Trace.from_json(capsys.readouterr().out).text == "3:1 2:2"
    with pytest.raises(InputError, match="was trained on sort"):
        trace("merge", "0.1:5 | 0.2:7", model=checkpoint)


def test_every_shipped_model_is_for_the_page():
    for trained in shipped():
        assert trained.run.task == trained.task.name
