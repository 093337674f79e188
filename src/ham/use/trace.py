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
from ham.core.tree import depth_of, path_to
from ham.models import HAM, SoftHAM
from ham.ops import reference
from ham.runs import Trained
from ham.tasks import Task
from ham.use.solve import memory_for

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
    bits: list[int]
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


@dataclass(frozen=True)
class Trace:
    """A whole greedy run of one model on one question."""

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
    """Whether every output that counts is right, to the last bit."""

    def trees(self) -> Iterator[np.ndarray]:
        """The whole memory before each timestep, and after the last."""
        tree = np.array(self.tree)
        yield tree.copy()
        for step in self.steps:
            for change in (step.written, *step.rejoined):
                tree[change.node] = change.after
            yield tree.copy()

    def to_json(self, indent: int | None = None) -> str:
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


def trace(trained: Trained, question: Any, *, leaves: int | None = None) -> Trace:
    """Run a model greedily on one question and write down all that happens."""
    return traces(trained, [question], leaves=leaves)[0]


def traces(trained: Trained, questions: Sequence[Any], *, leaves: int | None = None) -> list[Trace]:
    """A trace of each question; those of one size run together."""
    _hard_memory(trained)
    encoded = [trained.task.encode(question) for question in questions]
    by_size: dict[int, list[int]] = defaultdict(list)
    for place, rows in enumerate(encoded):
        size = memory_for(trained, len(rows)) if leaves is None else leaves
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
    """Run a batch on the reference engine, which is the definition, and split it into traces."""
    model: Any = trained.model  # one of the two with a tree, by _hard_memory
    task = trained.task
    targets = [task.targets(question) for question in questions]
    asked = torch.tensor([len(counted) for _, counted in targets]) * model.every
    lengths = torch.tensor([len(rows) for rows in encoded])
    batch, timesteps = len(questions), int(asked.max())
    inputs = torch.zeros(batch, max(len(rows) for rows in encoded), task.features)
    for row, rows in zip(inputs, encoded, strict=True):
        row[: len(rows)] = torch.from_numpy(rows)

    happened: list[tuple] = []
    greedy = torch.full((batch, depth_of(leaves)), 0.5)
    everyone = torch.arange(batch)[:, None]
    online = task.online
    with torch.no_grad():
        memory = model.memory
        tree = (memory.empty(batch, leaves) if online else memory.init(inputs, lengths, leaves)).tree.clone()
        first = tree.clone()
        if not online:
            h = c = torch.zeros(batch, model.controller.hidden_size)
        for t in range(timesteps):
            query = inputs[:, t] if online else h
            logits, _, leaf, value, _ = reference.attend(tree, query, greedy, memory.search)
            logits, leaf, value = logits.clone(), leaf.clone(), value.clone()
            if online:
                said = model.output(value)
            else:
                h, c = model.controller(value, (h, c))
                said = model.output(h)
            path = path_to(leaf, leaves)
            before = tree[everyone, path]
            reference.update(tree, leaf, inputs[:, t] if online else h, None, memory.write, memory.join)
            after = tree[everyone, path]
            parts = (query, path, torch.sigmoid(logits), leaf, value, before, after, torch.sigmoid(said))
            happened.append(tuple(part.tolist() for part in parts))

    initial = first.tolist()
    result = []
    for b, question in enumerate(questions):
        steps = []
        expected, counted = targets[b]
        for t in range(int(asked[b])):
            query, path, p_right, leaf, value, before, after, said = (part[b] for part in happened[t])
            changes = [Change(*change) for change in zip(path, before, after, strict=True)][::-1]
            symbol, rest = divmod(t + 1, model.every)
            output = None if rest else _output(task, said, expected[symbol - 1], bool(counted[symbol - 1]))
            steps.append(Step(query, path, p_right, leaf, value, changes[0], changes[1:], output))
        outputs = [step.output for step in steps if step.output is not None]
        bits = np.array([output.bits for output in outputs], np.float32).reshape(-1, task.bits)
        result.append(
            Trace(
                task=task.name,
                model=trained.run.model.kind,
                text=task.show(question),
                rows=encoded[b].tolist(),
                leaves=leaves,
                tree=initial[b],
                steps=steps,
                answer=task.show_answer(task.read_answer(question, bits)),
                expected=task.show_answer(task.solve(question)),
                right=all(output.right is not False for output in outputs),
            )
        )
    return result


def _output(task: Task, probabilities: list[float], target: np.ndarray, counts: bool) -> Output:
    bits = np.array([p > 0.5 for p in probabilities], np.float32)
    return Output(
        probabilities=probabilities,
        bits=[int(bit) for bit in bits],
        item=_item(task, bits),
        expected=_item(task, target) if counts else None,
        right=bool((bits == target).all()) if counts else None,
    )


def _item(task: Task, bits: np.ndarray) -> Any:
    if task.ends and bits[-1] > 0.5:
        return END
    item = task.answer_item(bits[: task.answer_bits])
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
            _numbers(step.output.probabilities, len(step.output.bits), f"{where} the output")
            _must(all(bit in (0, 1) for bit in step.output.bits), f"{where} output bits should be 0 or 1")


def _numbers(values: Any, length: int, what: str) -> None:
    _must(isinstance(values, list) and len(values) == length, f"{what} should be {length} numbers")
    for value in values:
        _must(type(value) in (int, float) and math.isfinite(value), f"{what} holds {value!r}")


def _must(right: bool, otherwise: str) -> None:
    if not right:
        raise ValueError(otherwise)
