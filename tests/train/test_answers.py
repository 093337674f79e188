"""Tasks whose answers are not bits: checked, trained, evaluated, solved and traced."""

import json
import logging
import math
from pathlib import Path

import numpy as np
import pytest
import torch

import ham
from ham import tasks
from ham.models import AttentiveDecoder, EncoderDecoder
from ham.runs import RunFolder, load
from ham.tasks import Batch, OneHot, Real, Task, ended, within
from ham.tasks.check import check
from ham.train.evaluate import evaluate
from ham.train.flat import FlatParameters
from ham.train.gradient import Gradient
from ham.train.loop import train
from ham.train.objective import Examples
from ham.use.solve import solve
from ham.use.trace import Trace, trace
from settings import run_with

LARGEST = Path(__file__).parents[2] / "examples" / "largest.py"


class Halves(Task):
    """Every number, halved; in words, whether it is above one half."""

    name, summary, features = "halves", "numbers halved", 1
    answers = Real(tolerance=0.1, deviation=0.2)

    def answer_to(self, numbers):
        return numbers / 2

    def sample(self, rng, batch, n, lengths):
        numbers = rng.random((batch, n, 1), np.float32) * within(lengths, n)[..., None].astype(np.float32)
        return Batch(numbers, lengths, *ended(self.answer_to(numbers), lengths))

    def solve(self, question):
        return [number / 2 for number in question]

    def encode(self, question):
        return np.array(question, np.float32)[:, None]

    def decode(self, rows):
        return [float(number) for number in rows[:, 0]]


class Sides(Halves):
    name = "sides"
    answers = OneHot("low", "high")

    def answer_to(self, numbers):
        return np.concatenate([numbers <= 0.5, numbers > 0.5], -1).astype(np.float32)

    def solve(self, question):
        return ["high" if number > 0.5 else "low" for number in question]


BOTH = pytest.mark.parametrize("task", [Halves(), Sides()], ids=["real", "one-hot"])


@pytest.fixture
def known(monkeypatch, unchecked):
    from ham.tasks import registry

    monkeypatch.setattr(registry, "_classes", {**registry._classes, "halves": Halves, "sides": Sides})


def examples_of(task, batch=8, n=4):
    rng = np.random.default_rng(0)
    return Examples.of(task.sample(rng, batch, n, task.draw_lengths(rng, batch, 1, n)), task.outputs)


@BOTH
def test_it_keeps_the_contract(task):
    assert check(task) == []


def test_check_says_what_answers_must_be():
    odd = type("Odd", (Halves,), {"answers": 3})()
    assert check(odd) == ["answers must be a codec, such as Real(tolerance=0.1), got 3"]


@BOTH
def test_it_is_learned(task, known, tmp_path):
    ham.set_backend("auto")
    run = run_with(task.name, start=2, leaves=2, epochs=3, batches=100, batch=32, validation=200, finish=0)
    folder = RunFolder(tmp_path / "run")
    folder.begin(run)
    epochs = [event for event in train(run, folder) if hasattr(event, "error")]
    assert epochs[-1].loss < epochs[0].loss / 2
    trained = load(folder.path)
    score = evaluate(
        trained.model, task, leaves=2, lengths=(1, 2), examples=100, rng=np.random.default_rng(1)
    )
    assert score.part_error < 20
    assert 200 <= score.parts <= 300  # symbols: one or two, and the end

    asked = [0.25, 0.75]
    answer = solve(trained, asked)
    assert answer.expected == task.solve(asked)
    made = trace(trained, asked)
    assert Trace.from_json(made.to_json()) == made
    assert [step.output.right for step in made.steps] == [answer.right] * 3 or not answer.right
    assert made.steps[0].output.item == task.answers.show(answer.answer[0])
    json.dumps(answer.answer)


@BOTH
@pytest.mark.parametrize("kind", ["lstm", "lstm+a", "lstm+ham", "dham"])
def test_both_engines_have_the_same_gradient(task, kind):
    pytest.importorskip("ham.ops.native")
    examples, found = examples_of(task), []
    for backend in ("reference", "auto"):
        ham.set_backend(backend)
        torch.manual_seed(0)
        run = run_with(task.name, ham.config.Architecture(kind, cells=5, size=4, hidden=6), batch=8)
        model = run.model.build(task)
        flat = FlatParameters(model)
        uniforms = torch.full((8, examples.counted.shape[1], model.decisions(4)), 0.5)
        cost = Gradient(model, flat, run).of(examples, uniforms, leaves=4, reinforce=1.0, exploration=0.1)
        found.append((cost.loss, flat.gradient.clone()))
    (loss, gradient), (other_loss, other) = found
    assert loss == pytest.approx(other_loss, rel=1e-4)
    torch.testing.assert_close(other, gradient, rtol=1e-3, atol=1e-5)


@BOTH
@pytest.mark.parametrize("kind", [EncoderDecoder, AttentiveDecoder])
def test_a_decoder_is_fed_what_it_said_as_the_codec_reads_it(task, kind, caplog):
    ham.set_backend("auto")
    examples = examples_of(task)
    model = kind(task.features, task.outputs.width, cells=6, codec=task.outputs)
    call = (examples.inputs, examples.lengths, examples.asked)
    with torch.no_grad(), caplog.at_level(logging.WARNING, "ham"):
        greedy = model(*call, leaves=4).outputs
        fed = model(*call, leaves=4, targets=task.outputs.read(greedy)).outputs
    torch.testing.assert_close(fed, greedy)
    ham.set_backend("native")
    if not ham.ops.native.why_not():
        with pytest.raises(ham.InputError, match="symbols of bits, not of Ended"):
            model(*call, leaves=4)


def test_the_example_is_learned(unchecked, tmp_path):
    task = tasks.get(f"{LARGEST}:Largest")
    assert check(task) == []
    ham.set_backend("auto")
    run = run_with(f"{LARGEST}:Largest", start=4, leaves=8, epochs=2, batches=250, validation=500, finish=0)
    folder = RunFolder(tmp_path / "run")
    folder.begin(run)
    for _ in train(run, folder):
        pass
    trained = load(folder.path, run.task)
    rng = np.random.default_rng(1)
    score = evaluate(trained.model, task, leaves=8, lengths=(1, 8), examples=500, rng=rng)
    assert score.error < 10
    answer = solve(trained, "0.31 0.92 0.4")
    assert answer.right
    assert math.isclose(answer.answer[0], 0.92, abs_tol=0.05)
