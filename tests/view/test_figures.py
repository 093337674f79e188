"""Plots and the analysis figure; what the search for a coordinate finds in traces that plant one."""

import dataclasses
import json
import os
import subprocess
import sys
from xml.etree import ElementTree

import numpy as np
import pytest

from ham.cli.plot import plot
from ham.core.errors import InputError
from ham.core.text import visible
from ham.runs import RECORD, RunFolder
from ham.use.trace import traces
from ham.view import plots
from ham.view.analysis import PAPER_INPUT, decipher, write_figure
from ham.view.plots import Measured, error_by_length, save
from settings import run_with


def planted(trained, count: int, coordinate: int):
    """Traces in which a coordinate of every inner node says where the minimum is, by construction."""
    rng = np.random.default_rng(0)
    drawn = traces(trained, [rng.integers(0, 16, 8).tolist() for _ in range(count)], leaves=8)
    for number, trace in enumerate(drawn):
        items = [int("".join(str(round(bit)) for bit in row), 2) for row in trace.rows]
        tree = rng.random((16, 6))
        for node in range(1, 8):
            span = 8 >> (node.bit_length() - 1)
            first = node * span - 8
            left, right = min(items[first : first + span // 2]), min(items[first + span // 2 : first + span])
            tree[node, coordinate] = rng.random() if right < left else 0.0
        drawn[number] = dataclasses.replace(trace, tree=tree.tolist(), steps=trace.steps[:1])
    return drawn


def test_a_planted_coordinate_is_found(untrained):
    sort4 = next(trained for trained in untrained if trained.task.name == "sort4")
    found = decipher(planted(sort4, 120, 4))
    assert found.coordinate == 4
    assert found.positive_means_right
    assert found.accuracy > 0.98
    assert min(found.sign_alone.values()) == 1
    assert {coordinate for coordinate, _, _ in found.best.values()} == {4}
    assert max(share for i, share in enumerate(found.every_coordinate) if i != 4) < 0.75
    assert max(found.guessing.values()) < 0.7


def test_the_analysis_figure(untrained, tmp_path):
    sort4 = next(trained for trained in untrained if trained.task.name == "sort4")
    finding = decipher(planted(sort4, 20, 2))
    [trace] = traces(sort4, [list(PAPER_INPUT)])
    png, svg = write_figure(trace, finding, tmp_path)
    assert png.read_bytes().startswith(b"\x89PNG")
    assert svg.read_text().count("<path") > 300


def test_other_traces_are_refused(untrained):
    sort = next(trained for trained in untrained if trained.task.name == "sort")
    with pytest.raises(InputError, match="sort4"):
        decipher(traces(sort, [[(1, 2)]] * 4))
    with pytest.raises(InputError, match="at least 4"):
        decipher([])


@pytest.fixture
def run_folders(untrained, tmp_path):
    """Two folders as training leaves them."""
    folders = []
    for name in ("stack", "queue"):
        trained = next(trained for trained in untrained if trained.task.name == name)
        run = run_with(name, trained.run.model, epochs=3)
        folder = RunFolder(tmp_path / "runs" / name)
        folder.begin(run)
        folder.write_checkpoint(run, trained.model.state_dict())
        folder.write_metrics(
            [
                {name: kind() for name, kind in RECORD.items()}
                | {"epoch": i, "longest": 4 * i, "error": 50 / i, "train_error": 60 / i, "entropy": 0.3 / i}
                for i in (1, 2, 4)
            ]
        )
        folders.append(folder.path)
    return folders


def test_plots_of_several_runs(run_folders, tmp_path, capsys):
    plot(tuple(run_folders), out=tmp_path / "plots", sizes=(4, 8), examples=20)
    printed = capsys.readouterr().out.split()
    assert [path.rpartition("/")[2] for path in printed] == [
        "learning.png",
        "learning.svg",
        "entropy.png",
        "entropy.svg",
        "lengths.png",
        "lengths.svg",
    ]
    text = (tmp_path / "plots" / "learning.svg").read_text()
    assert "stack" in text
    assert "queue" in text


def test_what_cannot_be_plotted_is_said(run_folders, tmp_path):
    with pytest.raises(InputError, match="cannot read"):
        plot((tmp_path / "nothing",))
    with pytest.raises(InputError, match="twice"):
        plot((run_folders[0], run_folders[0]))
    (run_folders[0] / "metrics.jsonl").write_text(json.dumps({"epoch": 1})[:-2])
    with pytest.raises(InputError, match="line 1"):
        plot((run_folders[0],))
    (run_folders[0] / "metrics.jsonl").unlink()
    with pytest.raises(InputError, match="no finished epoch"):
        plot((run_folders[0],))


def test_the_same_figure_is_the_same_file(tmp_path):
    points = {"sort": [Measured(4, 0.0, 0.0, 0.2), Measured(8, 1.0, 0.5, 2.0)]}
    for folder in ("a", "b"):
        save(error_by_length(points, {"sort": 8}), tmp_path / folder, "lengths")
    assert (tmp_path / "a/lengths.svg").read_bytes() == (tmp_path / "b/lengths.svg").read_bytes()


@pytest.mark.parametrize("name", [r"a$\frac{$b", "_hidden", "caf\udce9", "a\x1b[31mb", "<script>&", "%s {x}"])
def test_a_run_may_have_any_name(name, tmp_path):
    record = {"epoch": 1, "error": 5.0, "train_error": 6.0, "longest": 4, "entropy": 0.1}
    figures = {
        "learning": plots.learning({name: [record]}),
        "entropy": plots.entropy({name: [record]}),
        "lengths": plots.error_by_length({name: [Measured(4, 5.0, 4.0, 6.0)]}, {name: 4}),
    }
    for kind, figure in figures.items():
        _, svg = plots.save(figure, tmp_path, kind)
        tree = ElementTree.parse(svg)
        texts = ["".join(node.itertext()).strip() for node in tree.iter("{http://www.w3.org/2000/svg}text")]
        assert visible(name) in texts


def test_a_matplotlibrc_in_the_current_folder_is_not_obeyed(tmp_path):
    (tmp_path / "matplotlibrc").write_text("text.usetex: True\nfont.size: 99\nbackend: module://evil\n")
    (tmp_path / "evil.py").write_text("open('ran', 'w')")
    code = (
        "from ham.view import plots, drawing\nfrom pathlib import Path\n"
        "print(drawing.matplotlib().rcParams['font.size'], Path.cwd().name)\n"
        "record = {'epoch': 1, 'entropy': 0.1}\n"
        "plots.save(plots.entropy({'x': [record]}), Path('.'), 'plot')\n"
    )
    words = [sys.executable, "-P", "-c", code]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"10.0 {tmp_path.name}\n"
    assert (tmp_path / "plot.svg").is_file()
    assert not (tmp_path / "ran").exists()


def test_a_backend_that_is_none_is_said(tmp_path):
    words = [sys.executable, "-P", "-c", "from ham.view import drawing\ndrawing.matplotlib()"]
    environment = {**os.environ, "MPLBACKEND": "bogus"}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert "InputError: matplotlib does not start: " in done.stderr


def test_figures_leave_the_backend_alone_and_show_themselves():
    """In a process of its own, where nothing else has imported pyplot."""
    code = """
import sys, matplotlib
from matplotlib.figure import Figure
from ham.view.plots import Measured, entropy, error_by_length, learning
matplotlib.use = None
record = {"epoch": 1, "error": 1.0, "train_error": 2.0, "longest": 4, "entropy": 0.1}
points = {"sort": [Measured(4, 0.0, 0.0, 0.2), Measured(1024, 1.0, 0.5, 2.0)]}
for figure in (learning({"a": [record]}), entropy({"a": [record]}), error_by_length(points, {"sort": 4})):
    assert isinstance(figure, Figure)
    assert figure._repr_png_().startswith(b"\\x89PNG")
assert "matplotlib.pyplot" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_a_size_plot_has_every_size_and_the_ring_it_announces():
    points = {"sort": [Measured(size, 1.0, 0.5, 2.0) for size in (32, 64, 1024)]}
    axes = error_by_length(points, {"sort": 32}).axes[0]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["32", "64", "1,024"]
    rings = [line for line in axes.lines if line.get_fillstyle() == "none" and line.get_marker() == "o"]
    assert [line.get_xdata().tolist() for line in rings] == [[32]]
    assert "ring" in axes.get_xlabel()
