"""What a model did with one question, timestep by timestep.

Pictures, the page and other tools read traces and never a model. The format is versioned and
described in docs/trace_format.md; the page's own forward pass makes the same one.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ham.core.errors import InputError
from ham.core.files import read_json
from ham.core.numbers import whole
from ham.core.tree import path_to
from ham.models import HAM, SoftHAM
from ham.runs import ModelLike, Trained, loaded
from ham.tasks import Task
from ham.train.evaluate import require_finite
from ham.use.inline import drawn, in_lines
from ham.use.solve import as_asked, memory_for

FORMAT = "ham-trace"
VERSION = 1
END = "end"
"""The item that stands for End-Of-Output."""


@dataclass(frozen=True)
class Change:
    """A node's value before and after it was written or rejoined."""

    node: int
    before: list[float]
    after: list[float]


@dataclass(frozen=True)
class Output:
    """One output symbol and what the oracle says about it."""

    probabilities: list[float]
    """Of the bits or categories; the numbers themselves, where answers are real numbers."""
    bits: list[int]
    """The symbol that was read; empty, where answers are real numbers."""
    item: Any
    expected: Any
    """The oracle's item; None where nothing is asked (a data structure's answer to PUSH)."""
    right: bool | None


@dataclass(frozen=True)
class Step:
    """One timestep: descend, read, answer, write, rejoin."""

    query: list[float]
    """What guided the descent."""
    path: list[int]
    """Nodes from the root to the leaf, by heap number."""
    p_right: list[float]
    """Probability of going right at each node of the path but the leaf."""
    leaf: int
    """The accessed leaf, counted from 0."""
    value: list[float]
    """What was read there."""
    written: Change
    rejoined: list[Change]
    """The nodes above the leaf, from the leaf's parent up to the root."""
    output: Output | None
    """None at timesteps that give no output (η > 1)."""


@dataclass(frozen=True, repr=False)
class Trace:
    """A whole greedy run of one model on one question; printed a line a timestep, in a notebook drawn."""

    task: str
    model: str
    """Kind of model: lstm+ham or raw-ham."""
    text: str
    """The question as `ham solve` reads it."""
    rows: list[list[float]]
    """The input rows that the network saw."""
    leaves: int
    tree: list[list[float]]
    """Every node's value before the first timestep, by heap number; row 0 is unused."""
    steps: list[Step]
    answer: str
    expected: str
    right: bool
    """Whether every output that counts is right."""

    def __repr__(self) -> str:
        verdict = "right" if self.right else "wrong"
        text = self.text if len(self.text) <= 60 else f"{self.text[:59]}…"
        return f"Trace({self.task!r}, {text!r}, {verdict}, leaves={self.leaves}, steps={len(self.steps)})"

    def __str__(self) -> str:
        return in_lines(self)

    def _repr_html_(self) -> str:
        return drawn(self)

    def trees(self) -> Iterator[np.ndarray]:
        """The whole memory before each timestep, and after the last."""
        tree = np.array(self.tree)
        yield tree.copy()
        for step in self.steps:
            for change in (step.written, *step.rejoined):
                tree[change.node] = change.after
            yield tree.copy()

    def to_json(self, indent: int | None = None) -> str:
        """The trace in the format of docs/trace_format.md."""
        whole = {"format": FORMAT, "version": VERSION, **dataclasses.asdict(self)}
        return json.dumps(whole, indent=indent, default=str)

    @classmethod
    def from_json(cls, text: str, where: str = "the trace") -> Trace:
        """Read a trace back; nothing in it is believed before it is checked."""
        data = read_json(text, where, each=_with_reals)
        if not isinstance(data, dict) or data.pop("format", None) != FORMAT:
            raise InputError(f"{where} is not a trace: its format should be {FORMAT!r}")
        if (version := data.pop("version", None)) != VERSION:
            raise InputError(
                f"{where} is of version {version!r}; this version of ham reads version {VERSION}"
            )
        try:
            steps = [_step(step) for step in data.pop("steps")]
            trace = cls(**data, steps=steps)
            _check(trace)
        except (TypeError, KeyError, ValueError, AttributeError) as error:
            raise InputError(f"{where} is damaged: {error}") from None
        return trace


def trace(
    model: ModelLike, question: Any, *, task: str | Task | None = None, leaves: int | None = None
) -> Trace:
    """Run a model greedily on one question and write down all that happens.

    Args:
        model: a trained model, or what `ham.load` takes: a run's folder, a checkpoint, a name.
        question: the task's own values (`[(7, 1), (3, 9)]`), or text as for `ham solve` (`"7:1 3:9"`).
        task: another task than the one it was trained on.
        leaves: size of the memory; by default what the question needs, but not below the smallest of its training.
    """
    return traces(loaded(model, task), [question], leaves=leaves)[0]


def traces(trained: Trained, asked: Sequence[Any], *, leaves: int | None = None) -> list[Trace]:
    """A trace of each question; those of one size run together."""
    _hard_memory(trained)
    questions = [as_asked(trained.task, question) for question in asked]
    encoded = [trained.task.encode(question) for question in questions]
    by_size: dict[int, list[int]] = defaultdict(list)
    for place, rows in enumerate(encoded):
        size = memory_for(trained, len(rows)) if leaves is None else whole("leaves", leaves)
        if len(rows) > size:
            raise InputError(f"the question has {len(rows)} rows and does not fit into {size} leaves")
        by_size[size].append(place)
    found: dict[int, Trace] = {}
    for size, places in by_size.items():
        batch = _run(
            trained, [questions[place] for place in places], [encoded[place] for place in places], size
        )
        found.update(zip(places, batch, strict=True))
    return [found[place] for place in range(len(questions))]


def portable(trained: Trained) -> dict[str, Any]:
    """A model as plain values, for a forward pass elsewhere: float32 in base64, and their shapes."""
    _hard_memory(trained)
    weights = {
        name: tensor.detach().numpy().astype("<f4")
        for name, tensor in trained.model.state_dict().items()
        if not name.startswith("baseline.")
    }
    return {
        "task": trained.task.name,
        "kind": trained.run.model.kind,
        "controller": trained.run.model.controller,
        "every": trained.model.every,
        "smallest": trained.run.data.start,
        "trained_on": trained.run.data.leaves,
        "bounds": {
            "join": trained.run.model.join,
            "top": trained.run.model.top,
            "grid": trained.run.model.grid,
            "cell": trained.run.model.cell_bound,
        },
        "shapes": {name: list(array.shape) for name, array in weights.items()},
        "weights": base64.b64encode(b"".join(array.tobytes() for array in weights.values())).decode(),
    }


def _hard_memory(trained: Trained) -> None:
    memory = getattr(trained.model, "memory", None)
    if not isinstance(memory, HAM) or isinstance(memory, SoftHAM):
        kind = "a soft memory reads every leaf" if isinstance(memory, SoftHAM) else "it has no tree"
        raise InputError(f"this model ({trained.run.model.kind}) makes no descents to trace: {kind}")


def _run(trained: Trained, questions: list, encoded: list[np.ndarray], leaves: int) -> list[Trace]:
    """Run a batch, access by access, and split it into traces."""
    model: Any = trained.model  # one of the two with a tree, by _hard_memory
    task, codec = trained.task, trained.task.outputs
    targets = [task.targets(question) for question in questions]
    asked = torch.tensor([len(counted) for _, counted in targets]) * model.every
    lengths = torch.tensor([len(rows) for rows in encoded])
    batch, timesteps = len(questions), int(asked.max())
    inputs = torch.zeros(batch, max(len(rows) for rows in encoded), task.features, dtype=torch.float32)
    for row, rows in zip(inputs, encoded, strict=True):
        row[: len(rows)] = torch.from_numpy(rows)

    happened: list[tuple] = []
    everyone = torch.arange(batch)[:, None]
    online = task.online
    with torch.no_grad():
        memory = model.memory
        state = memory.empty(batch, leaves) if online else memory.init(inputs, lengths, leaves)
        first = state.tree.clone()
        require_finite(first, leaves, "values in memory")
        if not online:
            drive = model.controller.first(inputs)
        for t in range(timesteps):
            query = inputs[:, t] if online else drive[0]
            read = memory.attend(state, query, greedy=True)
            logits, leaf, value = read.turn_logits.clone(), read.leaf.clone(), read.value.clone()
            if online:
                said = model.output(value)
            else:
                drive = model.controller(value, drive)
                said = model.output(drive[0])
            path = path_to(leaf, leaves)
            before = state.tree[everyone, path]
            state = memory.update(state, read, inputs[:, t] if online else drive[0])
            after = state.tree[everyone, path]
            turns = torch.sigmoid(logits)
            made = {"queries": query, "turns": turns, "values in memory": after, "outputs": said}
            for what, part in made.items():
                require_finite(part[asked > t], leaves, what)
            said = (codec.chances(said), codec.read(said))
            parts = (query, path, turns, leaf, value, before, after, *said)
            happened.append(tuple(part.tolist() for part in parts))

    initial = first.tolist()
    result = []
    for b, question in enumerate(questions):
        steps: list[Step] = []
        symbols: list[list[float]] = []
        expected, counted = targets[b]
        for t in range(int(asked[b])):
            query, path, p_right, leaf, value, before, after, chances, read = (
                part[b] for part in happened[t]
            )
            changes = [Change(*change) for change in zip(path, before, after, strict=True)][::-1]
            output = None
            if (t + 1) % model.every == 0:
                target = expected[len(symbols)] if counted[len(symbols)] else None
                output = _output(task, chances, read, target)
                symbols.append(read)
            steps.append(Step(query, path, p_right, leaf, value, changes[0], changes[1:], output))
        outputs = [step.output for step in steps if step.output is not None]
        said = np.array(symbols, np.float32).reshape(-1, codec.width)
        result.append(
            Trace(
                task=task.name,
                model=trained.run.model.kind,
                text=task.show(question),
                rows=encoded[b].tolist(),
                leaves=leaves,
                tree=initial[b],
                steps=steps,
                answer=task.show_answer(task.read_answer(question, said)),
                expected=task.show_answer(task.solve(question)),
                right=all(output.right is not False for output in outputs),
            )
        )
    return result


def _output(task: Task, chances: list[float], read: list[float], target: np.ndarray | None) -> Output:
    hits = None if target is None else task.outputs.hits(torch.tensor(read), torch.from_numpy(target))
    return Output(
        probabilities=chances,
        bits=[int(bit) for bit in read] if task.outputs.discrete else [],
        item=_item(task, np.array(read, np.float32)),
        expected=None if target is None else _item(task, target),
        right=None if hits is None else bool(hits.all()),
    )


def _item(task: Task, symbol: np.ndarray) -> Any:
    """An item as JSON has it; real numbers as the task prints them."""
    if task.ends and symbol[-1] > 0.5:
        return END
    item = task.answer_item(symbol[: task.answers.width])
    if not task.outputs.discrete:
        return task.show_answer([item])
    return list(item) if isinstance(item, tuple) else item


REAL = {"before", "after", "probabilities", "query", "p_right", "value", "rows", "tree"}


def _with_reals(data: dict[str, Any]) -> dict[str, Any]:
    """Numbers as floats where floats are meant: a browser writes 1.0 as 1."""
    return {name: _real(value) if name in REAL else value for name, value in data.items()}


def _real(value: Any) -> Any:
    if isinstance(value, list):
        return [_real(item) for item in value]
    return float(value) if type(value) is int else value


def _step(data: dict) -> Step:
    changes = [Change(**change) for change in (data.pop("written"), *data.pop("rejoined"))]
    output = data.pop("output")
    return Step(
        **data,
        written=changes[0],
        rejoined=changes[1:],
        output=None if output is None else Output(**output),
    )


def _check(trace: Trace) -> None:
    """Shapes, ranges and finite numbers: what drawing code relies on."""
    for name in ("task", "model", "text", "answer", "expected"):
        _must(isinstance(getattr(trace, name), str), f"{name} should be a text")
    _must(isinstance(trace.right, bool), "right should be true or false")
    leaves = trace.leaves
    _must(
        type(leaves) is int and leaves >= 1 and not leaves & (leaves - 1), "leaves should be a power of two"
    )
    depth = leaves.bit_length() - 1
    _must(
        isinstance(trace.tree, list) and len(trace.tree) == 2 * leaves, f"tree should have {2 * leaves} rows"
    )
    size = len(trace.tree[0])
    _must(isinstance(trace.rows, list) and len(trace.rows) >= 1, "rows should hold at least one input row")
    for row in trace.rows:
        _numbers(row, len(trace.rows[0]), "an input row")
    for row in trace.tree:
        _numbers(row, size, "a node's value")
    for number, step in enumerate(trace.steps, 1):
        where = f"timestep {number}:"
        _must(type(step.leaf) is int and 0 <= step.leaf < leaves, f"{where} no leaf {step.leaf!r}")
        expected = [(leaves + step.leaf) >> level for level in range(depth, -1, -1)]
        _must(step.path == expected, f"{where} the path does not lead to leaf {step.leaf}")
        _numbers(step.query, len(step.query), f"{where} the query")
        _numbers(step.p_right, depth, f"{where} p_right")
        _numbers(step.value, size, f"{where} the value read")
        changes = [step.written, *step.rejoined]
        _must(
            [change.node for change in changes] == expected[::-1],
            f"{where} other nodes changed than the path's",
        )
        for change in changes:
            _numbers(change.before, size, f"{where} node {change.node} before")
            _numbers(change.after, size, f"{where} node {change.node} after")
        if step.output is not None:
            bits = len(step.output.bits) or len(step.output.probabilities)
            _numbers(step.output.probabilities, bits, f"{where} the output")
            _must(all(bit in (0, 1) for bit in step.output.bits), f"{where} output bits should be 0 or 1")


def _numbers(values: Any, length: int, what: str) -> None:
    _must(isinstance(values, list) and len(values) == length, f"{what} should be {length} numbers")
    for value in values:
        _must(type(value) in (int, float) and math.isfinite(value), f"{what} holds {value!r}")


def _must(right: bool, otherwise: str) -> None:
    if not right:
        raise ValueError(otherwise)
