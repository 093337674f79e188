"""Answers to a person's own questions: the Python call, and `ham solve` with its file formats."""

import io
import json
import logging
from contextlib import suppress
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import ham
from ham import runs, tasks
from ham.cli import main
from ham.cli.solve import _questions
from ham.config import Architecture, Run
from ham.core.errors import InputError
from ham.models import Model
from ham.models.recurrent import episode_of
from ham.runs import Trained
from ham.use import solve as solving
from ham.use.solve import MARGIN, solve, solve_all

EXAMPLES = {
    "reverse": [3, 1, 2],
    "search": [[[1, 5], [3, 7], [9, 2]], 3],
    "merge": [[[0.1, 5], [0.9, 3]], [[0.2, 7]]],
    "sort": [[7, 1], [3, 9], [7, 2]],
    "add": ["1011", "110"],
    "sort4": [7, 3, 15, 7],
    "stack": [4, 9, "pop"],
    "queue": [4, 9, "pop"],
    "priority_queue": [[30, 4], [2, 9], "pop"],
}
"""Every task's own example as the JSON list that stands for it."""


class Knows(Model):
    """A model that looks the answer up, and remembers how it was called."""

    def __init__(self, task, spoil=None):
        super().__init__()
        self.task, self.spoil, self.calls = task, spoil, []

    def episode(self, questions):
        inputs, lengths, asked = questions.inputs, questions.lengths, questions.asked
        assert not questions.keep
        assert inputs.shape[1] <= questions.leaves
        call = SimpleNamespace(lengths=lengths.tolist(), asked=asked.tolist(), leaves=questions.leaves)
        self.calls.append(call)
        outputs = np.zeros((len(inputs), questions.symbols, self.task.outputs.width), np.float32)
        for row, rows, length in zip(outputs, inputs.numpy(), lengths, strict=True):
            right, _ = self.task.targets(self.task.decode(rows[: int(length)]))
            row[: len(right)] = right
        if self.spoil:
            self.spoil(outputs)
        return episode_of(torch.from_numpy(outputs) - 0.5)


def knowing(name, spoil=None):
    task = tasks.get(name)
    return Trained(Knows(task, spoil), task, Run(name, Architecture()))


def no_end(outputs):
    outputs[..., -1] = 0


@pytest.fixture
def command(monkeypatch, capsys):
    """Runs `ham solve` with models that know the answer."""

    def run(*argv, stdin=b"", spoil=None):
        monkeypatch.setattr(runs, "load", lambda name, task=None: knowing(name, spoil))
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = main(["solve", *map(str, argv)])
        return (code, *capsys.readouterr())

    yield run
    logging.getLogger("ham").handlers.clear()


class TestCall:
    @pytest.mark.parametrize("name", tasks.registry.BUILT_IN)
    def test_text_and_values_give_the_same(self, name):
        trained = knowing(name)
        typed, listed = solve_all(trained, [trained.task.example, EXAMPLES[name]])
        assert typed.right
        assert listed.right
        assert typed.answer == listed.answer == typed.expected

    def test_memory_is_the_smallest_that_holds_it_and_was_trained(self):
        trained = knowing("reverse")
        assert [solve(trained, [1] * count).leaves for count in (1, 4, 5, 33)] == [4, 4, 8, 64]
        assert solve(trained, [1], leaves=16).leaves == 16

    def test_runs_some_symbols_past_the_longest_answer(self):
        trained = knowing("reverse")
        solve(trained, [1, 2, 3])
        assert trained.model.calls[0].asked == [3 + 1 + MARGIN]

    @pytest.mark.parametrize(("name", "asked"), [("search", 1), ("queue", 3)])
    def test_answers_of_known_length_are_not_run_longer(self, name, asked):
        trained = knowing(name)
        solve(trained, trained.task.example)
        assert trained.model.calls[0].asked == [asked]

    def test_without_an_end_it_is_wrong(self):
        found = solve(knowing("reverse", no_end), [1, 2])
        assert not found.ended
        assert not found.right
        assert len(found.answer) == 2 + 1 + MARGIN

    def test_questions_of_one_size_run_together_and_keep_their_order(self, monkeypatch):
        monkeypatch.setattr(solving, "LARGEST_BATCH", 2)
        trained = knowing("reverse")
        questions = [[1], [1, 2, 3, 4, 5], [2, 3], [4, 5, 6]]
        assert [found.answer for found in solve_all(trained, questions)] == [q[::-1] for q in questions]
        assert [(call.leaves, call.lengths) for call in trained.model.calls] == [
            (4, [1, 2]),
            (4, [3]),
            (8, [5]),
        ]

    def test_loads_a_model_by_name(self, monkeypatch):
        monkeypatch.setattr("ham.runs.trained.load", lambda name, task: knowing(name))
        assert ham.solve("reverse", "1 2").answer == [2, 1]

    def test_of_a_real_model_on_both_engines(self, engine):
        task = tasks.get("sort")
        trained = Trained(Architecture().build(task), task, Run("sort"))
        one, *_, again = solve_all(trained, ["7:1 3:9", "1:1", "1:2 2:3 3:4 4:5 5:6", "7:1 3:9"])
        assert one == again
        assert one.answer == solve(trained, "7:1 3:9").answer

    def test_too_long_for_the_memory_asked_for(self):
        with pytest.raises(InputError, match="3 rows and does not fit into 2 leaves"):
            solve(knowing("reverse"), [1, 2, 3], leaves=2)


class TestCommand:
    @pytest.mark.parametrize("name", tasks.registry.BUILT_IN)
    def test_typed(self, command, name):
        example = tasks.get(name).example
        code, printed, _ = command(name, example)
        assert code == 0
        assert printed.startswith(f"{example} → ")
        assert printed.endswith("  (right)\n")

    @pytest.mark.parametrize("name", tasks.registry.BUILT_IN)
    def test_json_lines(self, command, tmp_path, name):
        file = tmp_path / "questions.jsonl"
        example = tasks.get(name).example
        file.write_text(f"{json.dumps(EXAMPLES[name])}\n\n{json.dumps(example)}\n{example}\n")
        code, printed, complaint = command(name, "--file", file, "--json")
        answers = [json.loads(line) for line in printed.splitlines()]
        assert (code, complaint.splitlines()[-1]) == (0, "3 of 3 right")
        assert len({json.dumps(found["answer"]) for found in answers}) == 1
        assert list(answers[0]) == ["question", "answer", "expected", "right", "ended", "leaves"]

    @pytest.mark.parametrize("name", tasks.registry.BUILT_IN)
    def test_csv(self, command, tmp_path, name):
        example = tasks.get(name).example
        cells = example.split(", ") if "," in example else example.split()
        file = tmp_path / "questions.CSV"
        file.write_text(",".join(cells) + "\r\n\r\n" + ",".join(f'"{cell}"' for cell in cells) + "\r\n")
        code, printed, _ = command(name, "--file", file)
        assert code == 0
        assert [line.split(" → ")[0] for line in printed.splitlines()] == [example] * 2

    def test_standard_input(self, command):
        assert (
            command("reverse", "--file", "-", stdin=b"\xef\xbb\xbf3 1 2\n")[1] == "3 1 2 → 2 1 3  (right)\n"
        )
        assert command("reverse", "--file", "-", "--format", "csv", stdin=b"3,1,2")[0] == 0

    def test_disagreement_is_exit_code_1(self, command):
        code, printed, _ = command("reverse", "3 1", spoil=lambda outputs: outputs.fill(0))
        assert code == 1
        assert printed.endswith("  (wrong and has no end: should be 1 3)\n")

    @pytest.mark.parametrize(
        ("content", "said"),
        [
            (b"", "holds no question"),
            (b"\n \n", "holds no question"),
            (b"1 2\n3 1024\n", "line 2: item 2 must be a whole number between 0 and 1023, got 1024"),
            (b"1 2\n[1, 2\n", "line 2 is not valid JSON"),
            (b'{"question": [1]}\n', "line 1: expected a list or text"),
            (b"[1]\n[]\n", "line 2: expected a list of at least one item"),
            (b"[true]\n", "line 1: item 1 must be a whole number between 0 and 1023, got True"),
            (b"1\n\xff\xfe\n", "line 2: not UTF-8"),
            (b"[" * 100_000, "line 1 is not valid JSON"),
        ],
    )
    def test_corrupt_lines(self, command, tmp_path, content, said):
        file = tmp_path / "questions"
        file.write_bytes(content)
        code, printed, complaint = command("reverse", "--file", file)
        assert (code, printed) == (2, "")
        assert complaint.startswith(f"ham: {file}")
        assert said in complaint
        assert complaint.count("\n") == 1

    def test_corrupt_csv(self, command, tmp_path):
        file = tmp_path / "questions.csv"
        file.write_text('1,2\n"3\n')
        assert "line 2: not valid CSV" in command("reverse", "--file", file)[2]


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["pop", "101", "1:2", ""]),
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=12,
)


class TestAnything:
    @given(name=st.sampled_from(tasks.registry.BUILT_IN), question=values)
    def test_a_question_is_answered_or_refused(self, name, question):
        text = json.dumps([question]) if not isinstance(question, list) else json.dumps(question)
        task = tasks.get(name)
        try:
            (read,) = _questions_in(task, text)
        except InputError:
            return
        assert solve(knowing(name), read).right

    @given(name=st.sampled_from(tasks.registry.BUILT_IN), text=st.text(max_size=30))
    def test_text_is_read_or_refused(self, name, text):
        with suppress(InputError):
            solve(knowing(name), text)


def _questions_in(task, text):
    """What a file of one line holds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        return _questions(task, "-", None)
