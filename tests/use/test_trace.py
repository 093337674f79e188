"""Traces against the models' own forward pass, and their file format against damage."""

import json

import numpy as np
import pytest
import torch

from ham import tasks
from ham.config import Architecture, Run
from ham.core.errors import InputError
from ham.runs import Trained
from ham.use.trace import END, Trace, portable, trace, traces
from ham.view.page import KNOWN


def model_of(models, name: str) -> Trained:
    return next(trained for trained in models if trained.task.name == name)


@pytest.mark.parametrize("name", KNOWN)
def test_a_trace_is_what_the_model_does(untrained, name):
    trained = model_of(untrained, name)
    task, rng = trained.task, np.random.default_rng(3)
    batch = task.sample(rng, 6, 16, task.draw_lengths(rng, 6, 6, 16))
    questions = [task.decode(row[:length]) for row, length in zip(batch.inputs, batch.lengths, strict=True)]
    made = traces(trained, questions, leaves=16)
    counts = torch.tensor([len(task.targets(question)[1]) for question in questions])
    with torch.no_grad():
        episode = trained.model(
            torch.from_numpy(batch.inputs),
            torch.from_numpy(batch.lengths),
            counts,
            leaves=16,
            final_tree=True,
        )
    for b, (question, its) in enumerate(zip(questions, made, strict=True)):
        time = len(its.steps)
        assert [step.leaf for step in its.steps] == episode.leaves[b, :time].tolist()
        expected = torch.sigmoid(episode.turn_logits[b, :time])
        torch.testing.assert_close(torch.tensor([step.p_right for step in its.steps]), expected)
        queries = torch.tensor([step.query for step in its.steps])
        torch.testing.assert_close(queries, episode.queries[b, :time])
        outputs = [step.output for step in its.steps if step.output]
        probabilities = torch.tensor([output.probabilities for output in outputs])
        torch.testing.assert_close(probabilities, torch.sigmoid(episode.outputs[b, : len(outputs)]))
        final = list(its.trees())[-1]
        torch.testing.assert_close(torch.from_numpy(final[1:]).float(), episode.tree[b, 1:])
        asked = [output.expected for output in outputs if output.expected is not None]
        right = [list(item) if isinstance(item, tuple) else item for item in task.solve(question)]
        assert [item for item in asked if item != END] == right
        assert its.right == (all(output.right is not False for output in outputs))


@pytest.mark.parametrize("name", KNOWN)
def test_a_write_changes_one_path_and_starts_from_what_was_there(untrained, name):
    made = trace(model_of(untrained, name), tasks.get(name).parse(tasks.get(name).example))
    tree = np.array(made.tree)
    for step, after in zip(made.steps, list(made.trees())[1:], strict=True):
        assert step.value == step.written.before
        for change in (step.written, *step.rejoined):
            np.testing.assert_array_equal(tree[change.node], change.before)
        changed = np.flatnonzero((tree != after).any(1))
        assert set(changed) <= set(step.path)
        tree = after


def test_json_comes_back(untrained):
    made = trace(model_of(untrained, "sort"), [(7, 1), (3, 9), (7, 2)])
    again = Trace.from_json(made.to_json())
    assert again == made
    assert json.loads(made.to_json())["version"] == 1


def damaged(text: str):
    """Traces that are wrong in one way each."""
    whole = json.loads(text)

    def but(change):
        data = json.loads(text)
        change(data)
        return json.dumps(data)

    yield "[]"
    yield "null"
    yield "{"
    yield "[" * 100_000
    yield text[: len(text) // 2]
    yield but(lambda data: data.update(format="other"))
    yield but(lambda data: data.update(version=2))
    yield but(lambda data: data.update(leaves=5))
    yield but(lambda data: data.update(leaves=1 << 60))
    yield but(lambda data: data.update(leaves="4"))
    yield but(lambda data: data.update(tree=[]))
    yield but(lambda data: data["tree"].__setitem__(1, [float("nan")] * len(whole["tree"][1])))
    yield but(lambda data: data.update(steps={}) or data.update(steps=[{}]))
    yield but(lambda data: data.update(extra=1))
    yield but(lambda data: data.pop("rows"))
    yield but(lambda data: data["steps"][0].update(leaf=99))
    yield but(lambda data: data["steps"][0].update(path=[1, 3, 7]))
    yield but(lambda data: data["steps"][0].update(p_right=[0.5]))
    yield but(lambda data: data["steps"][0]["written"].update(after="x"))
    yield but(lambda data: data["steps"][0]["output"].update(bits=[2] * 11))
    yield but(lambda data: data["steps"][0].update(rejoined=[]))
    yield but(lambda data: data.update(text=5))


def test_a_damaged_trace_is_refused(untrained):
    made = trace(model_of(untrained, "sort"), [(7, 1), (3, 9), (7, 2)])
    assert made.steps[0].path != [1, 3, 7]
    for text in damaged(made.to_json()):
        with pytest.raises(InputError, match=r"the trace"):
            Trace.from_json(text)


def test_a_model_without_descents_cannot_be_traced():
    task = tasks.get("sort")
    architecture = Architecture(kind="dham")
    trained = Trained(architecture.build(task), task, Run("sort", architecture))
    with pytest.raises(InputError, match="soft memory"):
        trace(trained, [(1, 2)])
    with pytest.raises(InputError, match="soft memory"):
        portable(trained)


def test_a_question_that_does_not_fit_is_refused(untrained):
    with pytest.raises(InputError, match="does not fit"):
        trace(model_of(untrained, "sort"), [(1, 2)] * 5, leaves=4)
