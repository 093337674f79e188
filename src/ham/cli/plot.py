"""`ham plot`: learning curves, decision entropy and error by length of runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from tyro.conf import arg

from ham.cli import engine
from ham.cli.arguments import Backend, Threads, optional, require_sizes
from ham.core.errors import InputError
from ham.core.files import require_room
from ham.core.text import visible

SEED = 0
"""Of the test examples."""


def plot(
    runs: Annotated[tuple[Path, ...], optional("RUN_DIR ...")] = (),
    /,
    *,
    task: Annotated[str | None, optional("FILE.PY:CLASS")] = None,
    out: Annotated[Path, arg(metavar="DIR")] = Path("plots"),
    sizes: Annotated[tuple[int, ...], arg(metavar="N [N ...]")] = (4, 8, 16, 32, 64, 128),
    examples: int = 500,
    backend: Backend = None,
    threads: Threads = engine.THREADS,
) -> None:
    """Plot learning curves, decision entropy and error by length, as PNG and SVG.

    Args:
        runs: folders of runs; several are drawn side by side.
        task: of runs whose task is in a file, where that is; runs that file's code.
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
    require_sizes("--sizes", sizes)
    require_room(out, folder=True)
    engine.prepare(backend, threads)
    folders = {name: RunFolder(path) for name, path in zip(_names(runs), runs, strict=True)}
    records = {name: folder.metrics() for name, folder in folders.items()}
    for name, folder in folders.items():
        folder.run()
        if not records[name]:
            raise InputError(f"{folder.path} has no finished epoch to plot")
    trained_on = {name: folder.run().data.leaves for name, folder in folders.items()}
    errors = {name: measured(folder.path, task, sizes, examples) for name, folder in folders.items()}
    figures = {
        "learning": plots.learning(records),
        "entropy": plots.entropy(records),
        "lengths": plots.error_by_length(errors, trained_on),
    }
    for name, figure in figures.items():
        for path in plots.save(figure, out, name):
            print(visible(path))


def measured(path: Path, task: str | None, sizes: tuple[int, ...], examples: int) -> list[Any]:
    """Error of a run's best weights at each size of memory, on fresh examples of the paper's lengths."""
    from ham.runs import load
    from ham.train.evaluate import evaluate_at
    from ham.view.plots import Measured

    trained = load(path, task)
    points = []
    for leaves in sorted(set(sizes)):
        score = evaluate_at(trained, leaves, examples=examples, seed=SEED)
        points.append(Measured(leaves, score.error, *score.interval))
    return points


def _names(paths: tuple[Path, ...]) -> list[str]:
    """The folders' names, or as much of their paths as tells them apart."""
    for parts in range(1, max(len(path.parts) for path in paths) + 1):
        names = ["/".join(path.parts[-parts:]) for path in paths]
        if len(set(names)) == len(paths):
            return names
    raise InputError("the same run was given twice")
