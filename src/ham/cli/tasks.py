"""`ham tasks`."""

from __future__ import annotations

from ham import tasks as all_tasks
from ham.cli.tables import TABLE, Forms, Table


def tasks(*, form: Forms = TABLE) -> None:
    """List the tasks that can be named: the paper's, and those of installed packages."""
    found = [all_tasks.get(name) for name in all_tasks.names()]
    records = [
        {
            "task": task.name,
            "what": task.summary,
            "input": task.features,
            "output": task.outputs.width,
            "example": task.example,
        }
        for task in found
    ]
    rows = [tuple(map(str, record.values())) for record in records]
    form.show([Table(tuple(records[0]), rows, right=("input", "output"))], records)
