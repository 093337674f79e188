"""Numbers stay finite at the extremes; what cannot be represented stops with a line, not with a NaN.

The guards: LEAST_ENTROPY under α/H, LEAST_SQUARE under the advantages, softplus instead of the logarithm
of a probability, clipping, and `Diverged` and `NotFinite` where float32 ends.
"""

from __future__ import annotations

import importlib.util
import itertools
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch

from ham import tasks
from ham.config import Architecture, Run
from ham.core.errors import NotFinite
from ham.runs import RunFolder, Trained
from ham.train.evaluate import evaluate
from ham.train.flat import FlatParameters
from ham.train.gradient import Gradient
from ham.train.loop import Diverged, train
from ham.train.objective import Examples
from ham.train.state import Progress
from ham.use.probe import probe
from ham.use.solve import solve
from ham.use.trace import trace
from settings import run_with

SOAK = Path(__file__).parents[2] / "benchmarks" / "soak.py"


def kind_for(task) -> str:
    return "raw-ham" if task.online else "lstm+ham"


def cost_of(name: str, leaves: int, lengths, scaled: str = "", by: float = 1.0, **settings):
    """What one training batch costs, its gradient, and whether all decisions were saturated."""
    task = tasks.get(name)
    torch.manual_seed(1)
    model = Architecture(kind=kind_for(task)).build(task)
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            if scaled in parameter_name:
                parameter.mul_(by)
    flat = FlatParameters(model)
    rng = np.random.default_rng(2)
    examples = Examples.of(task.sample(rng, len(lengths), leaves, np.array(lengths)), task.outputs)
    shape = (len(lengths), examples.counted.shape[1] * model.every, model.decisions(leaves))
    uniforms = torch.from_numpy(rng.random(shape, dtype=np.float32))
    gradient = Gradient(model, flat, run_with(batch=len(lengths), **settings))
    cost = gradient.of(examples, uniforms, leaves=leaves, reinforce=1.0, exploration=1.5e-3)
    assert cost.finite == bool(torch.isfinite(flat.gradient).all())
    return cost, flat.gradient


@pytest.mark.parametrize("entropy", ["inverse", "negative"])
@pytest.mark.parametrize("name", ["sort", "stack"])
def test_saturated_decisions_have_no_entropy_and_a_finite_gradient(engine, name, entropy):
    """SEARCH times 1e3 gives logits of some 1e5: p is 0 or 1 to float32, and H is 0 under α/H."""
    lengths = [16] * 8
    cost, gradient = cost_of(name, 16, lengths, scaled="search", by=1e3, entropy=entropy)
    assert cost.finite
    assert cost.entropy < 1e-2
    assert gradient.abs().max() > 0
    certain, _ = cost_of(name, 16, lengths, scaled="search", by=1e9, entropy=entropy)
    assert certain.finite
    assert certain.entropy < 1e-12


@pytest.mark.parametrize("reward", ["hamming", "log-probability"])
@pytest.mark.parametrize("part", ["embed", "join", "search", "write", "controller", "output", "baseline"])
def test_any_part_of_the_weights_a_thousand_times_as_large(engine, part, reward):
    assert cost_of("sort", 32, [1, 32, 17, 32], scaled=part, by=1e3, reward=reward)[0].finite


@pytest.mark.parametrize("leaves", [1, 2, 16])
def test_all_weights_a_thousand_times_as_large(engine, leaves):
    assert cost_of("sort", leaves, [1, leaves], by=1e3)[0].finite
    assert cost_of("stack", leaves, [leaves, leaves], by=1e3)[0].finite


@pytest.mark.parametrize("name", tasks.names())
def test_the_shortest_and_the_longest(engine, name):
    shortest = tasks.get(name).shortest
    for leaves in {1 << (shortest - 1).bit_length(), 32}:
        cost, _ = cost_of(name, leaves, [shortest, leaves, leaves] if shortest <= leaves else [leaves])
        assert cost.finite


HUGE = Architecture(cells=8, size=8, hidden=8)


def overflowing(by: float) -> Trained:
    """A model whose values leave float32."""
    task = tasks.get("reverse")
    torch.manual_seed(0)
    model = HUGE.build(task)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(by)
    return Trained(model.eval(), task, Run("reverse", HUGE))


def test_outputs_that_are_no_numbers_are_no_answer(engine):
    trained = overflowing(by=1e30)
    rng = np.random.default_rng(0)
    with pytest.raises(NotFinite, match="outputs are not finite with 4 leaves"):
        evaluate(trained.model, trained.task, leaves=4, lengths=(1, 4), examples=20, rng=rng)
    with pytest.raises(NotFinite, match="outputs are not finite"):
        solve(trained, [1, 2, 3])
    with pytest.raises(NotFinite, match="are not finite with 4 leaves"):
        trace(trained, [1, 2, 3])
    with pytest.raises(NotFinite, match="outputs are not finite with 4 leaves"):
        probe(trained, leaves=4, examples=20, seed=0)


@pytest.mark.parametrize("look", [trace, probe])
def test_turns_that_are_no_numbers_are_not_shown(look):
    trained = overflowing(by=1.0)
    # The values of two children are finite, but what SEARCH makes of them is not.
    trained.model.memory.search.register_forward_hook(lambda _, __, logits: logits * float("nan"))
    with pytest.raises(NotFinite, match="turns are not finite with 4 leaves"):
        look(trained, [1, 2, 3]) if look is trace else look(trained, leaves=4, examples=20, seed=0)


def test_training_that_leaves_float32_stops_and_keeps_the_last_good_state(engine, tmp_path):
    trained = overflowing(by=1e4)
    run = run_with("reverse", HUGE, batch=4, epochs=2, batches=2, validation=4, start=64, leaves=64)
    folder = RunFolder(tmp_path / "run")
    folder.begin(run)
    weights = torch.cat([parameter.detach().flatten() for parameter in trained.model.parameters()])
    tensors = {name: weights.clone() for name in ("weights", "average", "best")}
    tensors |= {name: torch.zeros_like(weights) for name in ("mean", "square")}
    folder.write_state(folder.run(), tensors, asdict(Progress()))
    with pytest.raises(Diverged, match="not finite"):
        list(train(run, folder))
    kept, _ = folder.read_state()
    assert torch.equal(kept["weights"], weights)


def test_a_short_soak(tmp_path, monkeypatch):
    """Every task and every extreme once or more, on both engines; the long one is a command."""
    spec = importlib.util.spec_from_file_location("soak", SOAK)
    soak = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(soak)
    monkeypatch.setattr(soak, "BATCHES", {"native": 30, "reference": 2})
    seen = set()
    for number, (run, engine, extreme) in enumerate(itertools.islice(soak.legs(seed=0), 18)):
        assert soak.soak_leg(run, engine, extreme, tmp_path / str(number)) == soak.BATCHES[engine]
        seen |= {run.task, extreme}
    assert seen >= {*tasks.names(), *soak.EXTREMES}
