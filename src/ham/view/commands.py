"""`ham view`, `ham trace` and `ham plot`."""

from __future__ import annotations

import sys
import tempfile
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import arg

from ham.cli.arguments import optional
from ham.errors import InputError
from ham.view.page import KNOWN, MOST_ROWS, page

if TYPE_CHECKING:
    from ham.runs import Trained
    from ham.trace import Trace

PLOTTING = 5
"""Keeps the examples of plots apart from those of training, validation and tests."""


def view(
    task: Annotated[str | None, optional("TASK")] = None,
    question: Annotated[str | None, optional("INPUT")] = None,
    /,
    *,
    out: Annotated[Path | None, optional("FILE")] = None,
    no_open: bool = False,
    model: Annotated[str | None, optional("NAME_OR_DIR")] = None,
) -> None:
    """Write a page that shows the memory at work, and open it in the browser.

    The page is one file that needs no network; it holds every shipped model, and lets you type
    your own input for each.

    Args:
        task: the task to open it on.
        question: the input to open it with, as `ham solve` takes it.
        out: where to write the page; a temporary file if not given.
        no_open: do not open it in the browser.
        model: a run's folder or a checkpoint to show instead of the shipped model of its task.
    """
    from ham import tasks
    from ham.runs import load, write_whole
    from ham.trace import portable

    own = None if model is None else load(model, task if task and ".py:" in task else None)
    name = tasks.get(task).name if task else own.task.name if own else None
    if own and name != own.task.name:
        raise InputError(f"{model} was trained on {own.task.name}, not on {name}")
    if name is not None and name not in KNOWN:
        raise InputError(f"the page knows {', '.join(KNOWN)}, not {name}; ham trace works for every task")
    if question is not None and name is None:
        raise InputError("an input needs a task before it: ham view TASK INPUT")
    if question is not None:
        judge = tasks.get(str(name))
        if len(judge.encode(judge.parse(question))) > MOST_ROWS:
            raise InputError(f"the page draws inputs of up to {MOST_ROWS} rows; ham trace takes longer ones")
    models = {trained.task.name: portable(trained) for trained in (*shipped(), *([own] if own else []))}
    if not models:
        raise InputError("no model is shipped with this version; give one you trained: --model RUN_DIR")
    if name is not None and name not in models:
        raise InputError(f"no model of {name} is shipped; give one you trained: --model RUN_DIR")
    text = page(list(models.values()), name, question)
    path = Path(tempfile.mkdtemp(prefix="ham-")) / "ham.html" if out is None else out
    if not path.parent.is_dir():
        raise InputError(f"there is no folder {path.parent} to write {path.name} into")
    write_whole(path, text.encode())
    print(path)
    if not no_open and not webbrowser.open(path.resolve().as_uri()):
        print(f"no browser could be started; open {path} yourself", file=sys.stderr)


def trace(
    task: Annotated[str, arg(metavar="TASK")],
    question: Annotated[str, arg(metavar="INPUT")],
    /,
    *,
    json: bool = False,
    model: Annotated[str | None, optional("NAME_OR_DIR")] = None,
    leaves: Annotated[int | None, optional("N")] = None,
) -> None:
    """Print what a model does with an input, timestep by timestep.

    Args:
        task: the task.
        question: the input, as `ham solve` takes it.
        json: print everything, in the format of docs/trace_format.md.
        model: a run's folder, a checkpoint, or a shipped model; by default the one named as the task.
        leaves: size of the memory; by default the smallest that holds the question.
    """
    from ham import tasks
    from ham.runs import load
    from ham.trace import trace as traced

    judge = tasks.get(task)
    asked = judge.parse(question)
    trained = load(model or judge.name, task if ".py:" in task else None)
    if judge.name != trained.task.name:
        raise InputError(f"{model} was trained on {trained.task.name}, not on {judge.name}")
    made = traced(trained, asked, leaves=leaves)
    print(made.to_json() if json else summary(made))


def plot(
    runs: Annotated[tuple[Path, ...], arg(metavar="RUN_DIR...")],
    /,
    *,
    out: Path = Path("plots"),
    sizes: tuple[int, ...] = (4, 8, 16, 32, 64, 128),
    examples: int = 500,
) -> None:
    """Plot learning curves, decision entropy and error by length, as PNG and SVG.

    Args:
        runs: folders of runs; several are drawn side by side.
        out: folder to write into.
        sizes: sizes of memory (leaves) at which the error is measured.
        examples: fresh examples at each size.
    """
    from ham.runs import RunFolder
    from ham.view import plots

    if examples < 1:
        raise InputError(f"examples must be at least 1, got {examples}")
    if not runs:
        raise InputError("give at least one run's folder: ham plot RUN_DIR")
    folders = {name: RunFolder(path) for name, path in zip(_names(runs), runs, strict=True)}
    records = {name: folder.metrics() for name, folder in folders.items()}
    for name, folder in folders.items():
        folder.run()
        if not records[name]:
            raise InputError(f"{folder.path} has no finished epoch to plot")
    trained_on = {name: folder.run().training.leaves for name, folder in folders.items()}
    errors = {name: measured(folder.path, sizes, examples) for name, folder in folders.items()}
    figures = {
        "learning": plots.learning(records),
        "entropy": plots.entropy(records),
        "lengths": plots.error_by_length(errors, trained_on),
    }
    for name, figure in figures.items():
        for path in plots.save(figure, out, name):
            print(path)


def measured(path: Path, sizes: tuple[int, ...], examples: int) -> list[Any]:
    """Error of a run's best weights at each size of memory, on fresh examples of the paper's lengths."""
    import numpy as np
    import torch

    from ham.evaluate import evaluate_at
    from ham.runs import load
    from ham.view.plots import Measured

    torch.set_num_threads(1)
    trained = load(path)
    points = []
    for leaves in sorted(set(sizes)):
        rng = np.random.default_rng([PLOTTING, leaves])
        score = evaluate_at(trained, leaves, examples=examples, rng=rng)
        points.append(Measured(leaves, score.error, *score.interval))
    return points


def _names(paths: tuple[Path, ...]) -> list[str]:
    """The folders' names, or as much of their paths as tells them apart."""
    for parts in range(1, max(len(path.parts) for path in paths) + 1):
        names = ["/".join(path.parts[-parts:]) for path in paths]
        if len(set(names)) == len(paths):
            return names
    raise InputError("the same run was given twice")


def shipped() -> list[Trained]:
    """Every shipped model that the page can show."""
    from ham.runs import CHECKPOINT, load

    folder = Path(__file__).parent.parent / "pretrained"
    return [load(folder / name) for name in KNOWN if (folder / name / CHECKPOINT).is_file()]


def summary(trace: Trace) -> str:
    """A trace in a line a timestep."""
    lines = [f"{trace.task}, {trace.leaves} leaves: {trace.text}"]
    for number, step in enumerate(trace.steps, 1):
        turns = " ".join(f"{'R' if p > 0.5 else 'L'} {p:.2f}" for p in step.p_right)
        said = "" if step.output is None or step.output.expected is None else _said(step.output)
        lines.append(f"{number:4}  {turns}  leaf {step.leaf + 1}{said}")
    lines.append(
        f"answer {trace.answer or '(nothing)'}, {'right' if trace.right else f'should be {trace.expected}'}"
    )
    return "\n".join(lines)


def _said(output: Any) -> str:
    def show(item: Any) -> str:
        return ":".join(map(str, item)) if isinstance(item, list) else str(item)

    verdict = "right" if output.right else f"wrong, should be {show(output.expected)}"
    return f"  → {show(output.item)}  {verdict}"
