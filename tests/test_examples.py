"""The documented controllers run, and learn something; emptiness is what it says."""

import importlib.util
from pathlib import Path

import pytest
import torch

import ham

EXAMPLES = Path(__file__).parents[1] / "examples"


def loaded(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def example():
    return loaded("controllers")


@pytest.mark.parametrize("name", ["WithLSTM", "WithGRU", "WithFeedForward"])
def test_a_controller_learns(engine, example, name):
    model = getattr(example, name)(1, 1)
    errors = example.learn(model, steps=60)
    assert sum(errors[-10:]) < sum(errors[:10]) / 2


@pytest.mark.parametrize("name", ["WithLSTM", "WithGRU", "WithFeedForward"])
def test_every_parameter_gets_a_gradient(engine, example, name):
    model = getattr(example, name)(1, 1)
    answer, log_prob = model(torch.rand(64, 8, 1), 3)
    (answer.square().sum() + log_prob.sum()).backward()
    for parameter_name, parameter in model.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert torch.isfinite(parameter.grad).all(), parameter_name


def test_emptiness_is_the_length_of_roots_of_empty_trees():
    memory, emptiness = ham.HAM(3, 4, 5), loaded("emptiness")
    torch.nn.init.ones_(memory.join[-1].bias)
    lengths = emptiness.lengths_of_emptiness(memory)
    roots = [memory.empty(1, 1 << height).tree[0, 1].norm() for height in range(1, emptiness.HEIGHTS + 1)]
    assert lengths == pytest.approx([root.item() for root in roots])


def test_transformations_of_ones_own_learn():
    before, after = loaded("own_transformations").train(batches=400)
    assert before > 0.3
    assert after < 0.05
