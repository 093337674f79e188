"""`ham solve`: a trained model on a person's own questions, typed, from a file or from a pipe."""

from __future__ import annotations

import csv
import json as json_text
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import arg

from ham.cli import engine
from ham.cli.arguments import Backend, Threads, optional
from ham.cli.chosen import chosen
from ham.core.errors import InputError
from ham.core.files import read_json
from ham.tasks import Task

if TYPE_CHECKING:
    from ham.use.solve import Answer

Format = Literal["lines", "csv"]
LONGEST_LINE = 1 << 24
"""Bytes of the longest question: as JSON it may take thirty times as much memory."""
MOST_TOGETHER = 1000
LEAVES_AT_ONCE = 1 << 17
"""Questions, and rows of them, that are read before they are answered."""


def solve(
    what: Annotated[str, arg(metavar="TASK_OR_MODEL")],
    question: Annotated[str | None, optional("INPUT")] = None,
    /,
    *,
    file: Annotated[str | None, optional("FILE")] = None,
    format: Annotated[Format | None, optional("{lines,csv}")] = None,
    model: Annotated[str | None, optional("NAME_OR_DIR")] = None,
    task: Annotated[str | None, optional("FILE.PY:CLASS")] = None,
    leaves: Annotated[int | None, optional("N")] = None,
    json: bool = False,
    backend: Backend = None,
    threads: Threads = engine.THREADS,
) -> int:
    """Let a trained model answer your own questions, and say whether the oracle agrees.

    Exit code 0 if every answer is right, 1 if any is wrong, 2 if a question cannot be read.

    Args:
        what: a task (see ham tasks), which its shipped model is to solve, or a model: a run's folder, a checkpoint,
            a shipped one's name.
        question: the question as a person would type it, such as "7:1 3:9 7:2" for sort.
        file: read questions from this file instead, one a line; - is standard input.
        format: of the file. lines: JSON (a list, or text in quotes) or text as typed. csv: the
            words of a question in cells. By default csv for names that end in .csv.
        model: of a task, another model than the shipped one.
        task: of a model whose task is in a file, where that is; runs that file's code.
        leaves: size of the memory; by default the smallest that holds the question.
        json: print a JSON object a line.
    """
    if (question is None) == (file is None):
        raise InputError("give either a question or --file, as in: ham solve sort '7:1 3:9 7:2'")
    from ham.use.solve import solve_all

    engine.prepare(backend, threads)
    trained = chosen(what, model, task)
    judge = trained.task
    given = iter([_read(judge, question, "")]) if file is None else _questions(judge, file, format)
    right = asked = 0
    for questions in _batches(given):
        for answer in solve_all(trained, questions, leaves=leaves):
            print(json_text.dumps(asdict(answer)) if json else _line(judge, answer))
            right += answer.right
            asked += 1
    if file is not None:
        print(f"{right} of {asked} right", file=sys.stderr)
    return 0 if right == asked else 1


def _line(task: Task, answer: Answer) -> str:
    given = f"{task.show(answer.question)} → {task.show_answer(answer.answer)}"
    if answer.right:
        return f"{given}  (right)"
    end = "" if answer.ended else " and has no end"
    return f"{given}  (wrong{end}: should be {task.show_answer(answer.expected)})"


def _batches(questions: Iterator[tuple[Any, int]]) -> Iterator[list[Any]]:
    """Questions as they come, so many together that a file may hold any number of them."""
    batch, rows = [], 0
    for question, length in questions:
        batch.append(question)
        rows += length
        if len(batch) >= MOST_TOGETHER or rows >= LEAVES_AT_ONCE:
            yield batch
            batch, rows = [], 0
    if batch:
        yield batch


def _questions(task: Task, file: str, format: Format | None) -> Iterator[tuple[Any, int]]:
    """The questions of a file, each with its number of rows."""
    name = "standard input" if file == "-" else file
    lines = _lines(file, name)
    rows = _csv(task, lines, name) if (format or _format_of(file)) == "csv" else _typed(lines, name)
    none = True
    for number, given in rows:
        none = False
        yield _read(task, given, f"{name}, line {number}: ")
    if none:
        raise InputError(f"{name} holds no question")


def _format_of(file: str) -> Format:
    return "csv" if file.lower().endswith(".csv") else "lines"


def _lines(file: str, name: str) -> Iterator[tuple[int, str]]:
    """The lines of a text with their numbers, one at a time."""
    number = 0
    try:
        with nullcontext(sys.stdin.buffer) if file == "-" else Path(file).open("rb") as given:
            while line := given.readline(LONGEST_LINE + 1):
                number += 1
                if len(line) > LONGEST_LINE:
                    raise InputError(f"{name}, line {number}: it has more than {LONGEST_LINE:,} bytes")
                yield number, line.decode("utf-8" if number > 1 else "utf-8-sig")
    except InputError:
        raise
    except UnicodeDecodeError:
        raise InputError(f"{name}, line {number}: not UTF-8 text") from None
    except OSError as error:
        raise InputError(f"cannot read {name}: {error.strerror}") from None
    except ValueError as error:
        raise InputError(f"cannot read {name!r}: {error}") from None


def _typed(lines: Iterator[tuple[int, str]], name: str) -> Iterator[tuple[int, Any]]:
    """Questions with their line numbers; blank lines are passed over."""
    for number, line in lines:
        line = line.strip()
        if line.startswith(("[", '"', "{")):
            yield number, _json(line, f"{name}, line {number}")
        elif line:
            yield number, line


def _json(line: str, where: str) -> Any:
    question = read_json(line, where)
    if not isinstance(question, (str, list)):
        raise InputError(f"{where}: expected a list or text in quotes, got an object")
    return question


def _csv(task: Task, lines: Iterator[tuple[int, str]], name: str) -> Iterator[tuple[int, str]]:
    between = ", " if "," in task.example else " "
    length = 0

    def measured() -> Iterator[str]:
        nonlocal length
        for number, line in lines:
            length += len(line)
            if length > LONGEST_LINE:
                raise InputError(
                    f"{name}, line {number}: the question has more than {LONGEST_LINE:,} characters"
                )
            yield line

    reader = csv.reader(measured(), strict=True)
    try:
        for cells in reader:
            length = 0
            if any(cell.strip() for cell in cells):
                yield reader.line_num, between.join(cells)
    except csv.Error as error:
        raise InputError(f"{name}, line {reader.line_num}: not valid CSV: {error}") from None


def _read(task: Task, given: Any, where: str) -> tuple[Any, int]:
    """The question, if the task can take it, and its number of rows; the error says where it stood."""
    try:
        question = task.parse(given) if isinstance(given, str) else given
        return question, len(task.encode(question))
    except InputError as error:
        raise InputError(f"{where}{error}") from None
