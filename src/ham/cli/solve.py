"""`ham solve`: a trained model on a person's own questions, typed, from a file or from a pipe."""

from __future__ import annotations

import csv
import io
import json as json_text
import sys
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import arg

from ham import tasks
from ham.cli import engine
from ham.cli.arguments import Backend, optional
from ham.core.errors import InputError
from ham.core.files import LARGEST_TEXT, read_json
from ham.tasks import Task

if TYPE_CHECKING:
    from ham.use.solve import Answer

Format = Literal["lines", "csv"]


def solve(
    task: Annotated[str, arg(metavar="TASK")],
    question: Annotated[str | None, optional("INPUT")] = None,
    /,
    *,
    file: Annotated[str | None, optional("FILE")] = None,
    format: Annotated[Format | None, optional("{lines,csv}")] = None,
    model: Annotated[str | None, optional("NAME_OR_DIR")] = None,
    leaves: Annotated[int | None, optional("N")] = None,
    json: bool = False,
    backend: Backend = None,
    threads: int = engine.THREADS,
) -> int:
    """Let a trained model answer your own questions, and say whether the oracle agrees.

    Exit code 0 if every answer is right, 1 if any is wrong, 2 if a question cannot be read.

    Args:
        task: what to solve; see ham tasks.
        question: the question as a person would type it, such as "7:1 3:9 7:2" for sort.
        file: read questions from this file instead, one a line; - is standard input.
        format: of the file. lines: JSON (a list, or text in quotes) or text as typed. csv: the
            words of a question in cells. By default csv for names that end in .csv.
        model: a run's folder, a checkpoint, or a shipped model; by default the one named as the task.
        leaves: size of the memory; by default the smallest that holds the question.
        json: print a JSON object a line.
        backend: engine to run on; by default $HAM_BACKEND, or auto.
        threads: threads to run on.
    """
    if (question is None) == (file is None):
        raise InputError("give either a question or --file, as in: ham solve sort '7:1 3:9 7:2'")
    from ham import runs
    from ham.use.solve import solve_all

    engine.prepare(backend, threads)
    judge = tasks.get(task)
    questions = [_read(judge, question, "")] if file is None else _questions(judge, file, format)
    trained = runs.load(model or judge.name, task if ".py:" in task else None)
    if trained.task.name != judge.name:
        raise InputError(f"{model} was trained on {trained.task.name}, not on {judge.name}")
    answers = solve_all(trained, questions, leaves=leaves)
    for answer in answers:
        print(json_text.dumps(asdict(answer)) if json else _line(judge, answer))
    right = sum(answer.right for answer in answers)
    if file is not None:
        print(f"{right} of {len(answers)} right", file=sys.stderr)
    return 0 if right == len(answers) else 1


def _line(task: Task, answer: Answer) -> str:
    given = f"{task.show(answer.question)} → {task.show_answer(answer.answer)}"
    if answer.right:
        return f"{given}  (right)"
    end = "" if answer.ended else " and has no end"
    return f"{given}  (wrong{end}: should be {task.show_answer(answer.expected)})"


def _questions(task: Task, file: str, format: Format | None) -> list[Any]:
    name = "standard input" if file == "-" else file
    text = _text(file, name)
    rows = _csv(task, text, name) if (format or _format_of(file)) == "csv" else _lines(text, name)
    questions = [_read(task, given, f"{name}, line {number}: ") for number, given in rows]
    if not questions:
        raise InputError(f"{name} holds no question")
    return questions


def _format_of(file: str) -> Format:
    return "csv" if file.lower().endswith(".csv") else "lines"


def _text(file: str, name: str) -> str:
    try:
        with nullcontext(sys.stdin.buffer) if file == "-" else Path(file).open("rb") as given:
            data = given.read(LARGEST_TEXT + 1)
    except OSError as error:
        raise InputError(f"cannot read {name}: {error.strerror}") from None
    except ValueError as error:
        raise InputError(f"cannot read {name!r}: {error}") from None
    if len(data) > LARGEST_TEXT:
        raise InputError(f"{name} has more than {LARGEST_TEXT:,} bytes; give it in parts")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise InputError(f"{name}, line {line}: not UTF-8 text") from None


def _lines(text: str, name: str) -> list[tuple[int, Any]]:
    """Questions with their line numbers; blank lines are passed over."""
    rows: list[tuple[int, Any]] = []
    for number, line in enumerate(text.split("\n"), 1):
        line = line.strip()
        if line.startswith(("[", '"', "{")):
            rows.append((number, _json(line, f"{name}, line {number}")))
        elif line:
            rows.append((number, line))
    return rows


def _json(line: str, where: str) -> Any:
    question = read_json(line, where)
    if not isinstance(question, (str, list)):
        raise InputError(f"{where}: expected a list or text in quotes, got an object")
    return question


def _csv(task: Task, text: str, name: str) -> list[tuple[int, str]]:
    between = ", " if "," in task.example else " "
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    rows = []
    try:
        for cells in reader:
            if any(cell.strip() for cell in cells):
                rows.append((reader.line_num, between.join(cells)))
    except csv.Error as error:
        raise InputError(f"{name}, line {reader.line_num}: not valid CSV: {error}") from None
    return rows


def _read(task: Task, given: Any, where: str) -> Any:
    """The question, if the task can take it; the error says where it stood."""
    try:
        question = task.parse(given) if isinstance(given, str) else given
        task.encode(question)
    except InputError as error:
        raise InputError(f"{where}{error}") from None
    return question
