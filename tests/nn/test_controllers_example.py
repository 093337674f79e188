"""The documented controllers run, and learn something."""

import importlib.util
from pathlib import Path

import pytest
import torch

PATH = Path(__file__).parents[2] / "examples" / "controllers.py"


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("controllers", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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
