"""`ham trace`: what a model does with an input, timestep by timestep."""

from __future__ import annotations

from typing import Annotated

from tyro.conf import arg

from ham.cli.arguments import optional
from ham.core.errors import InputError


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
    from ham.use.trace import trace as traced

    judge = tasks.get(task)
    trained = load(model or judge.name, task if ".py:" in task else None)
    if judge.name != trained.task.name:
        raise InputError(f"{model} was trained on {trained.task.name}, not on {judge.name}")
    made = traced(trained, question, leaves=leaves)
    print(made.to_json() if json else made)
