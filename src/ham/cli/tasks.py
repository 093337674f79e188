"""`ham tasks`."""

from __future__ import annotations

from ham import tasks as all_tasks


def tasks() -> None:
    """List the tasks that can be named: the paper's, and those of installed packages."""
    from ham.cli import terminal

    rows = []
    for name in all_tasks.names():
        task = all_tasks.get(name)
        rows.append((task.name, task.summary, str(task.features), str(task.outputs.width), task.example))
    terminal.table(("task", "what", "input", "output", "example"), rows, right=("input", "output"))
