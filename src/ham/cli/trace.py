"""`ham trace`: what a model does with an input, timestep by timestep."""

from __future__ import annotations

from typing import Annotated

from tyro.conf import arg

from ham.cli import engine
from ham.cli.arguments import Backend, optional
from ham.cli.chosen import chosen


def trace(
    what: Annotated[str, arg(metavar="TASK_OR_MODEL")],
    question: Annotated[str, arg(metavar="INPUT")],
    /,
    *,
    json: bool = False,
    model: Annotated[str | None, optional("NAME_OR_DIR")] = None,
    task: Annotated[str | None, optional("FILE.PY:CLASS")] = None,
    leaves: Annotated[int | None, optional("N")] = None,
    backend: Backend = None,
) -> None:
    """Print what a model does with an input, timestep by timestep. Leaves are counted from 0.

    Args:
        what: a task, whose shipped model is traced, or a model: a run's folder, a checkpoint, a shipped one's name.
        question: the input, as `ham solve` takes it.
        json: print everything, in the format of docs/trace_format.md.
        model: of a task, another model than the shipped one.
        task: of a model whose task is in a file, where that is; runs that file's code.
        leaves: size of the memory; by default the smallest that holds the question.
    """
    from ham.use.trace import trace as traced

    engine.prepare(backend, None)
    made = traced(chosen(what, model, task), question, leaves=leaves)
    print(made.to_json() if json else made)
