"""What is wrong with a task, in plain words: what was expected and what was got."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import is_dataclass
from typing import Any

import numpy as np

from ham.tasks.base import Batch, HardCase, Practice, Task
from ham.tasks.codecs import Codec

BATCH = 16
SEED = 1


def check(task: Task) -> list[str]:
    """Everything that is wrong with a task; empty when it keeps the contract.

    What the task's own methods raise is a problem to report, never an exception of `check`.
    """
    problems = list(_attributes(task))
    if problems:
        return problems  # nothing below means much without them
    for part in (_lengths, _samples, _text, _hard_cases):
        try:
            problems += part(task)
        except (Exception, SystemExit) as error:
            problems.append(_told(task, error))
    return list(dict.fromkeys(problems))


def _attributes(task: Task) -> Iterator[str]:
    if not isinstance(task, Task):
        yield f"a task must be an instance of ham.tasks.Task, got {type(task).__name__}"
        return
    expected: dict[str, tuple[Any, str]] = {
        "name": (lambda value: isinstance(value, str) and re.fullmatch(r"[\w+-]+", value), "a word"),
        "summary": (lambda value: isinstance(value, str) and value, "a line of text"),
        "features": (_counts, "a whole number from 1"),
        "answer_bits": (_counts, "a whole number from 1"),
        "shortest": (_counts, "a whole number from 1"),
        "ends": (lambda value: isinstance(value, bool), "True or False"),
        "online": (lambda value: isinstance(value, bool), "True or False"),
        "every": (lambda value: value is None or _counts(value), "None or a whole number from 1"),
        "example": (lambda value: isinstance(value, str), "text"),
        "options": (
            lambda value: isinstance(value, type) and issubclass(value, Practice) and is_dataclass(value),
            "a dataclass that inherits from ham.tasks.Practice",
        ),
    }
    if type(task).answers is not Task.answers:
        del expected["answer_bits"]
        expected["answers"] = (lambda value: isinstance(value, Codec), "a codec, such as Real(tolerance=0.1)")
    for name, (right, what) in expected.items():
        if not hasattr(task, name):
            yield f"{name} is missing: expected {what}"
        elif not right(getattr(task, name)):
            yield f"{name} must be {what}, got {getattr(task, name)!r}"


def _counts(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _lengths(task: Task) -> Iterator[str]:
    for low, high in _ranges(task):
        call = f"draw_lengths(rng, {BATCH}, {low}, {high})"
        lengths = np.asarray(task.draw_lengths(_rng(), BATCH, low, high))
        if lengths.shape != (BATCH,) or lengths.dtype.kind not in "iu":
            yield f"{call} must give {BATCH} whole numbers, got {lengths.dtype} of shape {lengths.shape}"
        elif lengths.min() < max(low, task.shortest) or lengths.max() > high:
            yield (
                f"{call} must stay within {max(low, task.shortest)} and {high}, "
                f"got {lengths.min()} to {lengths.max()}"
            )
        elif not np.array_equal(lengths, task.draw_lengths(_rng(), BATCH, low, high)):
            yield f"{call} gave other lengths for the same seed: draw only from rng"


def _samples(task: Task) -> Iterator[str]:
    for low, n in _ranges(task):
        lengths = np.asarray(task.draw_lengths(_rng(), BATCH, low, n))
        call = f"sample(rng, {BATCH}, {n}, lengths)"
        batch = task.sample(_rng(), BATCH, n, lengths)
        problems = list(_shapes(task, batch, n, lengths))
        if not problems:
            again, other = (task.sample(_rng(seed), BATCH, n, lengths) for seed in (SEED, SEED + 1))
            if not all(np.array_equal(*parts) for parts in zip(_parts(batch), _parts(again), strict=True)):
                problems.append("must give the same batch for the same seed: draw only from rng")
            if n > 8 and np.array_equal(batch.inputs, other.inputs):
                problems.append("gave the same inputs for another seed: draw them from rng")
            problems += _examples(task, batch)
        yield from (f"{call} {problem}" for problem in problems)


def _shapes(task: Task, batch: Any, n: int, lengths: Any) -> Iterator[str]:
    if not isinstance(batch, Batch):
        yield f"must give a ham.tasks.Batch, got {type(batch).__name__}"
        return
    symbols = task.symbols(n)
    expected = {
        "inputs": ((BATCH, n, task.features), "float32"),
        "lengths": ((BATCH,), "int64"),
        "targets": ((BATCH, symbols, task.outputs.width), "float32"),
        "counted": ((BATCH, symbols), "bool"),
    }
    right = True
    for name, (shape, dtype) in expected.items():
        part = np.asarray(getattr(batch, name))
        if part.shape != shape or part.dtype != dtype:
            right = False
            yield f"must give {name} as {dtype} of shape {shape}, got {part.dtype} of shape {part.shape}"
    if right and not np.array_equal(batch.lengths, lengths):
        yield f"must keep the lengths it was given, {lengths.tolist()}, got {batch.lengths.tolist()}"
    if right and not np.isfinite(batch.inputs).all():
        yield "must give finite inputs, got NaN or infinity"
    if right and (problem := task.outputs.problem(batch.targets)):
        yield problem


def _examples(task: Task, batch: Batch) -> Iterator[str]:
    """The first example in which the batch, the oracle and the two directions of encoding disagree."""
    for which in range(len(batch)):
        length = int(batch.lengths[which])
        rows, beyond = np.split(batch.inputs[which], [length])
        if beyond.any():
            yield f"must leave rows beyond the length zero: example {which} has {length} rows and more"
            return
        question = task.decode(rows)
        problem = _disagreement(task, batch, which, rows, question)
        if problem:
            yield f"made the question {_short(question)}, but {problem}"
            return


def _disagreement(task: Task, batch: Batch, which: int, rows: Any, question: Any) -> str | None:
    encoded = np.asarray(task.encode(question))
    if encoded.shape != rows.shape or not np.array_equal(encoded, rows):
        return f"encode(decode(rows)) must be the same rows, got {_short(encoded)} for {_short(rows)}"
    copy = task.decode(rows)
    answer = task.solve(question)
    if not _same(question, copy):
        return "solve changed its question: work on a copy"
    targets, counted = task.targets(question)
    symbols = int(task.symbols(len(rows)))
    if len(targets) != symbols:
        return f"symbols({len(rows)}) is {symbols} and targets(question) has {len(targets)} symbols"
    if not np.array_equal(batch.counted[which, :symbols], counted):
        return (
            f"counted must be {_short(counted.astype(int))}, got {_short(batch.counted[which].astype(int))}"
        )
    if batch.counted[which, symbols:].any():
        return f"counts more than its {symbols} output symbols"
    wrong = np.flatnonzero((batch.targets[which, :symbols] != targets).any(-1) & counted)
    if len(wrong):
        return (
            f"solve says {_short(answer)}, so target symbol {wrong[0]} must be "
            f"{_short(targets[wrong[0]])}, got {_short(batch.targets[which, wrong[0]])}"
        )
    read = task.read_answer(question, batch.targets[which, :symbols])
    # Reals pass through float32; what JSON has a form for must come back as it was.
    if not (_same(read, answer) or (task.outputs.part != "bit" and task.right(read, answer))):
        return f"read_answer of the right symbols must be {_short(answer)}, got {_short(read)}"
    return None


def _text(task: Task) -> Iterator[str]:
    if type(task).parse is Task.parse:
        return  # only `ham solve` needs it
    if not task.example:
        yield "example is missing: expected a question that parse reads"
        return
    question = task.parse(task.example)
    rows = np.asarray(task.encode(question))
    if rows.ndim != 2 or rows.shape[1] != task.features:
        yield f"encode(parse(example)) must have {task.features} columns, got shape {rows.shape}"
    elif not np.array_equal(task.encode(task.parse(task.show(question))), rows):
        yield f"parse(show(question)) must be the question, but show gives {task.show(question)!r}"
    if not isinstance(task.show_answer(task.solve(question)), str):
        yield "show_answer must give text"


def _hard_cases(task: Task) -> Iterator[str]:
    cases = task.hard_cases()
    if not (isinstance(cases, Sequence) and all(isinstance(case, HardCase) for case in cases)):
        yield f"hard_cases() must give a sequence of ham.tasks.HardCase, got {_short(cases)}"
        return
    leaves = max(high for _, high in _ranges(task))
    for case in cases:
        rows = np.asarray(task.encode(case.draw(_rng(), leaves)))
        if rows.ndim != 2 or rows.shape[1] != task.features:
            yield f"the hard case {case.name!r} must have {task.features} columns, got shape {rows.shape}"
        elif len(rows) > leaves and not task.online:
            yield f"the hard case {case.name!r} must fit into {leaves} leaves, got {len(rows)} rows"


def _ranges(task: Task) -> list[tuple[int, int]]:
    """Ranges of lengths as training, test and generalisation draw them, up to a memory's size."""
    small = 1 << max(task.shortest - 1, 1).bit_length()
    return [(1, small), (1, 8 * small), (4 * small + 1, 8 * small), (1, 8 * small - 3)]


def _rng(seed: int = SEED) -> np.random.Generator:
    return np.random.default_rng(seed)


def _parts(batch: Batch) -> tuple:
    return batch.inputs, batch.lengths, batch.targets, batch.counted


def _same(one: Any, other: Any) -> bool:
    return repr(one) == repr(other)


def _short(value: Any) -> str:
    text = " ".join(str(value.tolist() if isinstance(value, np.ndarray) else value).split())
    return text if len(text) <= 120 else f"{text[:117]}..."


def _told(task: Task, error: BaseException) -> str:
    """An exception in one line, with the innermost place in the task's own file if there is one."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename == type(task).sample.__code__.co_filename]
    frame = (own or frames)[-1]
    return f"{frame.name} (line {frame.lineno}) raised {type(error).__name__}: {error}"
