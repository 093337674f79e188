"""Whatever a stranger sends is read, or refused with what is wrong; nothing else happens.

Each test draws a bounded number of cases; `HAM_FUZZ=10000 pytest tests/reliability/test_fuzz.py`
draws more, and other ones each time. `InputError` is the one way to be refused: anything else that is
raised here would be a traceback in a user's face.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ham import runs, tasks
from ham.cli.solve import _questions
from ham.config import Architecture, Run
from ham.core.errors import InputError
from ham.core.text import LONGEST_MESSAGE, one_line
from ham.runs import CHECKPOINT, METRICS, STATE, RunFolder
from ham.search import plan as plans
from ham.search import space as spaces
from ham.train.loop import train
from ham.use.trace import Trace, trace
from hostile import TEXTS, cases, questions, spoilt_bytes, spoilt_json, spoilt_tensors
from settings import run_with

RUN = run_with(
    "reverse",
    Architecture(cells=3, size=3, hidden=3),
    batch=2,
    epochs=2,
    batches=1,
    validation=2,
    start=1,
    leaves=2,
    threshold=1.0,
)


@contextmanager
def refusals() -> Iterator[None]:
    """Lets a refusal pass if it says something in one line."""
    try:
        yield
    except InputError as error:
        said = one_line(str(error))
        assert said
        assert len(said) <= LONGEST_MESSAGE


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory) -> RunFolder:
    folder = RunFolder(tmp_path_factory.mktemp("run") / "run")
    folder.begin(RUN)
    for _ in train(RUN, folder):
        pass
    return folder


@pytest.fixture(scope="module")
def good(run_folder) -> dict[str, bytes]:
    """The files of a run as they should be."""
    return {name: (run_folder.path / name).read_bytes() for name in (CHECKPOINT, STATE, METRICS)}


@cases(150)
@given(st.data())
def test_checkpoints(tmp_path, good, data):
    path = tmp_path / "stranger.safetensors"
    path.write_bytes(data.draw(spoilt_tensors(good[CHECKPOINT])))
    with refusals():
        trained = runs.load(path)
        assert trained.task.name in tasks.names()
        assert all(torch.isfinite(weight).all() for weight in trained.model.parameters())


@cases(100)
@given(st.data())
def test_resume_states(tmp_path_factory, good, data):
    folder = RunFolder(tmp_path_factory.mktemp("run"))
    folder.begin(RUN)
    for name, content in good.items():
        (folder.path / name).write_bytes(content)
    spoilt = data.draw(spoilt_tensors(good[STATE]))
    (folder.path / STATE).write_bytes(spoilt)
    if data.draw(st.booleans()):
        (folder.path / METRICS).write_bytes(data.draw(spoilt_bytes(good[METRICS])))
    with refusals():
        for _, _event in zip(range(3), train(RUN, folder), strict=False):
            pass
        tensors, _ = folder.read_state()
        assert all(torch.isfinite(tensor).all() for tensor in tensors.values())


@cases(100)
@given(st.data())
def test_records_of_epochs(tmp_path, good, data):
    folder = RunFolder(tmp_path)
    lines = [data.draw(spoilt_json(json.loads(line))) for line in good[METRICS].splitlines()]
    (tmp_path / METRICS).write_bytes("\n".join(lines).encode("utf-8", "surrogatepass"))
    with refusals():
        records = folder.metrics()
        outcome = plans.Outcome(0, RUN, "finished", tuple(records))
        assert len(list(plans.standings(outcome.records))) == len(records)


@cases(300)
@given(spoilt_json(json.loads(RUN.to_json())))
def test_run_configs(text):
    with refusals():
        run = Run.from_json(text, "config.json")
        assert Run.from_json(run.to_json(), "again") == run
        task = tasks.get(tasks.named(run.task, None, "config.json"))
        with torch.device("meta"):
            run.model.build(task)


SPACE = {
    "main.learning_rate": {"log": [1e-3, 1e-2]},
    "objective.discount": {"uniform": [0.5, 1]},
    "model.hidden": {"choice": [20, 40]},
    "model.kind": "lstm+ham",
    "data.runs": {"choice": [1, 4]},
    "schedule.epochs": {"uniform": [1, 10]},
    "data.mix": 0.3,
}


@cases(200)
@given(spoilt_json(SPACE))
def test_search_spaces(text):
    with refusals():
        base, space = spaces.merged(
            Run("reverse"), tasks.get("reverse"), spaces.from_file(text, "space.json"), "space.json"
        )
        for number in range(2):
            spaces.draw(base, space, 0, number)


@cases(100)
@given(
    st.lists(st.text(max_size=30) | st.sampled_from([*TEXTS, "data.mix=uniform:0:0.5", "model.size=1e999"]))
)
def test_search_flags(flags):
    with refusals():
        given = spaces.from_flags(flags)
        base, space = spaces.merged(Run("reverse"), tasks.get("reverse"), given, "--set")
        spaces.draw(base, space, 0, 0)


PLAN = plans.Plan(
    RUN, spaces.from_json({"data.mix": {"uniform": [0.0, 0.5]}}, "x"), trials=3, seed=0, backend="auto"
)


@cases(150)
@given(spoilt_json(json.loads(PLAN.to_json())))
def test_search_plans(text):
    with refusals():
        plan = plans.Plan.from_json(text, "search.json")
        plan.run(plan.numbers[0])


@pytest.mark.parametrize("name", tasks.names())
@cases(40)
@given(st.data())
def test_questions(name, data):
    """What can be read can be encoded, solved, shown, and read again."""
    task = tasks.get(name)
    with refusals():
        question = task.parse(data.draw(questions(name)))
        rows = task.encode(question)
        assert rows.shape[1] == task.features
        assert torch.isfinite(torch.from_numpy(rows)).all()
        task.show_answer(task.solve(question))
        assert task.encode(task.parse(task.show(question))).tolist() == rows.tolist()


@pytest.mark.parametrize("name", ["sort", "merge", "add", "search", "priority_queue"])
@cases(30)
@given(st.data())
def test_files_of_questions(tmp_path, name, data):
    task = tasks.get(name)
    plain = json.loads(json.dumps(task.parse(task.example)))
    line = spoilt_json(plain if isinstance(plain, list) else [plain]) | questions(name)
    text = "\n".join(data.draw(st.lists(line, min_size=1, max_size=3)))
    kind = data.draw(st.sampled_from(["lines", "csv"]))
    if kind == "csv":
        text = text.replace(" ", ",")
    content = text.encode("utf-8", "surrogatepass")
    path = Path(tmp_path / "questions")
    path.write_bytes(data.draw(spoilt_bytes(content)) if data.draw(st.booleans()) else content)
    with refusals():
        for question, _ in _questions(task, str(path), kind):
            task.show(question)
            task.show_answer(task.solve(question))


@pytest.fixture(scope="module")
def traced() -> dict:
    task = tasks.get("sort")
    trained = runs.Trained(Architecture(size=2, cells=2, hidden=2).build(task), task, Run("sort"))
    return json.loads(trace(trained, [(7, 1), (3, 9)]).to_json())


@cases(200)
@given(st.data())
def test_traces(traced, data):
    with refusals():
        found = Trace.from_json(data.draw(spoilt_json(traced)))
        assert len(list(found.trees())) == len(found.steps) + 1
        assert Trace.from_json(found.to_json()) == found
