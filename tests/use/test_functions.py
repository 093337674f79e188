"""The commands as functions: what they take, what they give, and how it shows."""

import json
import sys
from dataclasses import replace
from html.parser import HTMLParser
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch

import ham
from ham import tasks
from ham.config import Run, changed
from ham.core.errors import InputError
from ham.core.rows import MOST_SHOWN, Rows
from ham.runs import save_checkpoint
from ham.tasks.reverse import Reverse
from ham.train import progress

SMALL = {
    "data.start": 2, "data.leaves": 4, "data.batches": 20, "data.validation": 20, "data.threshold": 1.0,
    "data.batch": 8, "data.runs": 2, "schedule.finish": 0, "schedule.epochs": 2,
    "model.depth": 1, "model.size": 4, "model.hidden": 4, "model.cells": 4,
}  # fmt: skip

SHORT = {name: value for name, value in SMALL.items() if not name.startswith("model.")}


@pytest.fixture
def sort(untrained):
    return next(trained for trained in untrained if trained.task.name == "sort")


class Tags(HTMLParser):
    """The tags of a text, which must close what they open."""

    def __init__(self, text):
        super().__init__()
        self.open, self.seen = [], []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.seen.append(tag)
        self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.seen.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("runs") / "reverse"


@pytest.fixture(scope="module")
def trained(folder):
    ham.set_backend("reference")
    return ham.train("reverse", seed=3, changes=SMALL, out=folder, progress=False)


class TestTrain:
    def test_gives_the_model_with_its_log_as_rows(self, trained, folder):
        assert (trained.task.name, trained.run.seed, trained.run.data.leaves) == ("reverse", 3, 4)
        assert [row["epoch"] for row in trained.log] == [1, 2]
        assert trained.path == folder / "checkpoint.safetensors"
        assert ham.load(folder).run == trained.run

    def test_what_is_done_is_not_done_again(self, trained, folder):
        assert ham.resume(folder, progress=False).log == trained.log

    def test_a_folder_with_a_run_is_left_alone(self, trained, folder):
        with pytest.raises(InputError, match="already holds a run"):
            ham.train(trained.run, out=folder, progress=False)

    def test_a_task_of_ones_own(self, tmp_path):
        class Backwards(Reverse):
            name = "backwards in a notebook"

        try:
            trained = ham.train(Backwards(), **once(tmp_path))
            assert trained.task.name == "backwards in a notebook"
        finally:
            del tasks.registry._classes["backwards in a notebook"]

    def test_a_whole_run(self, tmp_path):
        trained = ham.train(Run("search"), **once(tmp_path))
        assert trained.run == changed(Run("search"), once(tmp_path)["changes"])

    def test_from_a_trained_model(self, trained, tmp_path):
        again = ham.train("reverse", init=trained, **once(tmp_path))
        assert (again.run.model, again.run.init) == (trained.run.model, str(trained.path.absolute()))
        with torch.no_grad():
            again.model.output.bias += 1
        for other in (again, replace(trained, path=None)):
            with pytest.raises(
                InputError, match=r"in no file to start from; write one with \.save_pretrained"
            ):
                ham.train("reverse", init=other, out=tmp_path / "more")
        folder = again.save_pretrained(tmp_path / "kept")
        assert ham.train("reverse", init=ham.load(folder), **{**once(tmp_path), "out": tmp_path / "more"})

    @pytest.mark.parametrize("name", ["data.colour", "colour", "colour.data"])
    def test_a_setting_that_there_is_not(self, tmp_path, name):
        with pytest.raises(InputError, match=f"no setting is named {name}"):
            ham.train("reverse", changes={name: 1}, out=tmp_path / "run")
        assert not (tmp_path / "run").exists()

    @pytest.mark.parametrize(
        "wrong", [{"changes": {**SMALL, "schedule.restart": 1}}, {"changes": SMALL, "seed": True}]
    )
    def test_a_setting_of_another_type_is_refused_before_anything_is_written(
        self, unchecked, tmp_path, wrong
    ):
        with pytest.raises(InputError, match=r"restart must be bool, got 1|seed must be int, got True"):
            ham.train("reverse", out=tmp_path / "run", progress=False, **wrong)
        assert not (tmp_path / "run").exists()


def once(tmp_path):
    return {"changes": {**SMALL, "schedule.epochs": 1}, "out": tmp_path / "run", "progress": False}


class TestProgress:
    @pytest.fixture
    def cells(self, monkeypatch):
        """A notebook, as far as it is asked for one; gives what its cells showed, in order."""
        shown = []
        inside, display = ModuleType("IPython"), ModuleType("IPython.display")
        display.HTML = str
        display.display = lambda html, display_id: SimpleNamespace(update=shown.append)
        inside.get_ipython = lambda: SimpleNamespace(kernel=object())
        monkeypatch.setitem(sys.modules, "IPython", inside)
        monkeypatch.setitem(sys.modules, "IPython.display", display)
        monkeypatch.setattr(progress, "SECONDS_BETWEEN_UPDATES", 0.0)
        return shown

    def test_in_a_notebook_a_bar_is_replaced_again_and_again(self, cells, tmp_path, capsys):
        ham.train("reverse", **{**once(tmp_path), "progress": True})
        assert len(cells) > 1
        assert all(Tags(text).seen == ["span", "span"] for text in cells)
        assert "epoch 1/1" in cells[-1]
        assert "width:100.0%" in cells[-1]
        assert capsys.readouterr().out == ""

    def test_what_is_counted_goes_away_when_it_is_done(self, cells, sort):
        ham.evaluate(sort, leaves=4, examples=3, seed=1)
        assert "n = 4: 3 of 3" in cells[-2]
        assert cells[-1] == ""

    def test_a_terminal_is_no_notebook(self, cells, monkeypatch):
        assert progress.in_notebook()
        monkeypatch.setattr(sys.modules["IPython"], "get_ipython", lambda: SimpleNamespace())
        assert not progress.in_notebook()
        monkeypatch.setattr(sys.modules["IPython"], "get_ipython", lambda: None)
        assert not progress.in_notebook()

    def test_elsewhere_it_is_a_line_an_epoch(self, tmp_path, capsys):
        ham.train("reverse", **{**once(tmp_path), "progress": True})
        assert capsys.readouterr().out.startswith("epoch 1/1  n 2  error ")


class TestRows:
    def test_evaluate_by_the_papers_protocol(self, sort):
        rows = ham.evaluate(sort, examples=2, seed=5, progress=False)
        assert [(row["leaves"], row["lengths"]) for row in rows] == [(32, [1, 32]), (128, [65, 128])]
        assert {row["task"] for row in rows} == {"sort"}
        assert {row["seed"] for row in rows} == {5}
        assert json.loads(json.dumps(rows)) == rows

    def test_one_size_or_several(self, sort):
        [one] = ham.evaluate(sort, leaves=8, lengths=(3, 5), examples=2, seed=5, progress=False)
        assert (one["leaves"], one["lengths"]) == (8, [3, 5])
        rows = ham.stress(sort, leaves=(4, 8), examples=2, seed=5)
        families = [case.name for case in sort.task.hard_cases()]
        assert [row["family"] for row in rows] == families * 2
        assert all(0 <= row["wrong"] <= 2 for row in rows)
        assert rows == ham.stress(sort, leaves=(4, 8), examples=2, seed=5)

    def test_a_file_is_as_good_as_a_model(self, sort, tmp_path):
        save_checkpoint(tmp_path / "own.safetensors", sort.run, sort.model.state_dict())
        question = "3:1 2:2"
        assert ham.trace(tmp_path / "own.safetensors", question) == ham.trace(sort, question)
        assert ham.solve(tmp_path / "own.safetensors", question) == ham.solve(sort, question)

    def test_they_show_as_tables(self):
        rows = Rows([{"name": "<b>", "error": 1 / 3, "range": [0.0, 1.5]}])
        assert repr(rows).splitlines() == ["name    error    range", " <b>  0.33333  0 – 1.5"]
        assert "&lt;b&gt;" in rows._repr_html_()
        Tags(rows._repr_html_())
        assert repr(Rows()) == "Rows([])"
        Tags(Rows()._repr_html_())
        many = Rows([{"number": number} for number in range(MOST_SHOWN + 1)])
        assert repr(many).endswith("… 41 rows in all")

    def test_what_cannot_be_measured_is_refused(self, sort):
        with pytest.raises(InputError, match="seed must lie"):
            ham.evaluate(sort, seed=-1)
        with pytest.raises(InputError, match="examples must be at least 1"):
            ham.stress(sort, examples=0)
        with pytest.raises(InputError, match="power of two"):
            ham.stress(sort, leaves=5)


class TestTraces:
    def test_text_and_values_give_the_same(self, sort):
        assert ham.trace(sort, "7:1 3:9 7:2") == ham.trace(sort, [(7, 1), (3, 9), (7, 2)])

    def test_printed_it_is_a_line_a_timestep_and_leaves_count_from_0(self, sort):
        made = ham.trace(sort, "7:1 3:9 7:2")
        first, *steps, last = str(made).splitlines()
        assert first == "sort, 4 leaves: 7:1 3:9 7:2"
        assert [line.split("leaf ")[1].split()[0] for line in steps] == [str(s.leaf) for s in made.steps]
        assert last.startswith("answer ")
        assert repr(made).startswith("Trace('sort', '7:1 3:9 7:2', ")
        assert len(repr(ham.trace(sort, "7:1 " * 100))) < 120

    def test_a_notebook_draws_a_tree_a_timestep(self, sort):
        made = ham.trace(sort, "7:1 3:9 7:2")
        text = made._repr_html_()
        tags = Tags(text).seen
        assert tags.count("svg") == len(made.steps)
        assert tags.count("circle") == 7 * len(made.steps)
        assert f"path to leaf {made.steps[0].leaf} of 4" in text
        assert "<script" not in text

    def test_of_a_large_tree_it_shows_the_lines(self, sort):
        made = ham.trace(sort, [(1, 1)] * 33)
        assert Tags(made._repr_html_()).seen == ["pre"]

    def test_a_strangers_trace_shows_as_text_alone(self, sort):
        data = json.loads(ham.trace(sort, "7:1 3:9").to_json())
        data |= {"text": "<script>", "answer": "<img>"}
        shown = ham.Trace.from_json(json.dumps(data))._repr_html_()
        assert not {"script", "img"} & set(Tags(shown).seen)


class TestView:
    def test_a_page_shows_itself_and_can_be_written(self, sort, tmp_path, monkeypatch):
        monkeypatch.setattr("ham.view.watch.shipped", lambda: [])
        page = ham.view(sort, [(3, 1), (2, 2)])
        assert '"start": {"task": "sort", "input": "3:1 2:2"}' in page.html
        assert page.save(tmp_path / "page.html").read_text("utf-8") == page.html
        assert Tags(page._repr_html_()).seen == ["iframe"]
        assert repr(page).startswith("Page('sort', ")
        opened = []
        monkeypatch.setattr("webbrowser.open", opened.append)
        where = page.open()
        assert opened == [where.as_uri()]
        with pytest.raises(InputError, match="there is no folder"):
            page.save(tmp_path / "no" / "page.html")
        with pytest.raises(InputError, match="an input needs a model"):
            ham.view(None, "3:1")


def test_everything_says_in_a_line_what_it_is(sort):
    memory = ham.HAM(3, 4, 5)
    state = memory.init(sort.model.output.weight.new_zeros(2, 6, 3))
    assert repr(memory) == "HAM(features=3, query=4, size=5, hidden=20, depth=2, join=rectified)"
    assert repr(state) == "State(batch=2, leaves=8, size=5)"
    read = memory.eval().attend(state, state.tree.new_zeros(2, 4))
    assert repr(read) == f"Read(batch=2, size=5, leaf={read.leaf.tolist()})"
    memory.update(state, read, state.tree.new_zeros(2, 4))
    assert repr(state) == "State(batch=2, leaves=8, size=5, spent)"
    answer = ham.solve(sort, "7:1 3:9")
    assert repr(answer).startswith("Answer([")
    for shown in (sort, sort.model, sort.task, answer):
        assert "\n" not in repr(shown)


def test_numbers_of_numpys_are_numbers(unchecked, sort):
    eight, one = np.int64(8), np.int64(1)
    asked = {"leaves": eight, "examples": one, "seed": one}
    rows = ham.evaluate(sort, **asked, lengths=(one, eight), progress=False)
    for found in (rows, ham.evaluate(sort, **asked | {"leaves": np.array([4, 8])}, progress=False)):
        assert json.loads(json.dumps(found))[-1]["leaves"] == 8
    json.dumps(ham.stress(sort, **asked))
    json.dumps(ham.probe(sort, **asked).to_json())
    assert ham.solve(sort, "1:1 2:2", leaves=eight).leaves == 8
    assert ham.trace(sort, "1:1 2:2", leaves=eight).leaves == 8


@pytest.mark.parametrize(
    "asked", [{"lengths": (2.5, 3)}, {"leaves": 8.0}, {"examples": "many"}, {"seed": 1.5}]
)
def test_what_is_no_whole_number_is_refused(unchecked, sort, asked):
    with pytest.raises(InputError, match=f"{next(iter(asked))} must be a whole number"):
        ham.evaluate(sort, **{"leaves": 8, **asked}, progress=False)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
def test_another_usual_type_of_numbers_changes_nothing(tmp_path, dtype):
    before, usual = ham.trace("sort", "7:1 3:9"), torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        assert ham.trace("sort", "7:1 3:9") == before
        trained = ham.train("reverse", changes=SMALL, out=tmp_path / "run", progress=False)
        assert {parameter.dtype for parameter in trained.model.parameters()} == {torch.float32}
        ham.train("reverse", init="reverse", changes=SHORT, out=tmp_path / "from", progress=False)
    finally:
        torch.set_default_dtype(usual)


def test_solving_inside_autocast_is_still_an_answer():
    with torch.autocast("cpu", torch.bfloat16):
        assert ham.solve("reverse", "3 1 2").answer
