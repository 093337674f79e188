"""The documented examples run, and learn something; emptiness is what it says."""

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
    return loaded("own_controller")


def test_a_controller_of_ones_own_learns(engine, example):
    errors = example.learn(example.Finder(1, 1), steps=60)
    assert sum(errors[-10:]) < sum(errors[:10]) / 2


def test_a_controller_of_ones_own_makes_a_whole_model(example):
    ham.set_backend("auto")
    model = ham.LSTMHAM(3, 2, cells=5, size=4, controller=example.Elman(4, 5))
    asked = torch.tensor([3, 1])
    episode = model(torch.rand(2, 4, 3), torch.tensor([4, 2]), asked, leaves=4)
    episode.outputs.sum().backward()
    assert episode.outputs.shape == (2, 3, 2)
    assert model.controller.layer.weight.grad.abs().sum() > 0


def test_every_parameter_gets_a_gradient(engine, example):
    model = example.Finder(1, 1)
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


@pytest.mark.parametrize(("kind", "batches"), [(ham.HAM, 800), (ham.SoftHAM, 200)])
def test_a_model_of_ones_own_learns_hard_and_soft(unchecked, kind, batches):
    """Guessing, it would be wrong half of the time."""
    ham.set_backend("auto")
    own = loaded("own_model")
    assert own.train(own.LookUp(kind), batches) < 0.15


def test_the_model_of_ones_own_is_short():
    text = (EXAMPLES / "own_model.py").read_text("utf-8")
    code = [line for line in text.split('"""', 2)[2].splitlines() if line.strip()]
    assert len(code) < 60


class TestStream:
    @pytest.fixture
    def agent(self):
        return loaded("stream").Agent().eval()

    def run(self, agent, carry, xs):
        answers = []
        for x in xs.unbind(1):
            carry, (answer, _) = agent.step(carry, x[:, None])
            answers.append(answer)
        return carry, torch.stack(answers, 1)

    def test_chunks_give_what_the_whole_gives_and_no_gradient_before_them(self, agent):
        stream, xs = loaded("stream"), torch.rand(2, 6, requires_grad=True)
        _, whole = self.run(agent, agent.start(2), xs)
        carry, first = self.run(agent, agent.start(2), xs[:, :3])
        first.sum().backward()
        xs.grad = None
        _, second = self.run(agent, stream.detached(carry), xs[:, 3:])
        torch.testing.assert_close(torch.cat([first, second], 1), whole)
        second.sum().backward()
        assert (xs.grad[:, :3] == 0).all()
        assert (xs.grad[:, 3:] != 0).any()

    def test_an_episode_that_ended_starts_anew_and_no_other(self, agent):
        xs, more = torch.rand(3, 4), torch.rand(3, 4)
        carry, _ = self.run(agent, agent.start(3), xs)
        _, through = self.run(agent, (carry[0].clone(), carry[1]), more)
        done = torch.tensor([False, True, False])
        _, after = self.run(agent, agent.restarted(carry, done), more)
        _, fresh = self.run(agent, agent.start(3), more)
        torch.testing.assert_close(after[done], fresh[done])
        torch.testing.assert_close(after[~done], through[~done])
        assert not torch.allclose(through[done], fresh[done])

    def test_it_learns(self, agent):
        costs = loaded("stream").learn(agent.train(), chunks=120)
        assert sum(costs[-10:]) < 0.75 * sum(costs[:10])
