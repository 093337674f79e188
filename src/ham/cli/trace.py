"""`ham trace`: what a model does with an input, timestep by timestep."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import arg

from ham.cli.arguments import optional
from ham.core.errors import InputError

if TYPE_CHECKING:
    from ham.use.trace import Trace


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
    asked = judge.parse(question)
    trained = load(model or judge.name, task if ".py:" in task else None)
    if judge.name != trained.task.name:
        raise InputError(f"{model} was trained on {trained.task.name}, not on {judge.name}")
    made = traced(trained, asked, leaves=leaves)
    print(made.to_json() if json else summary(made))


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
