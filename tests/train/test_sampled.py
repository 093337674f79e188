"""Soft attention that is learned with sampled turns: trained as hard attention is, validated softly in the end."""

import pytest
import torch

from ham.config import Architecture, Soft, changed
from ham.core.errors import InputError
from ham.models import SoftHAM
from ham.runs import RunFolder, load
from ham.train import loop
from ham.train.gradient import Gradient
from ham.train.loop import Epoch, train
from settings import run_with

SETTINGS = dict(batch=8, runs=2, epochs=5, batches=4, validation=20, leaves=8, threshold=1.0, finish=2)
SIZES = dict(size=4, hidden=4)


def hard(task):
    kind = "raw-ham" if task == "stack" else "lstm+ham"
    run = run_with(task, Architecture(kind=kind, **SIZES), seed=3, **SETTINGS, baseline="leave-one-out")
    practised = {
        "end.exploration": 0.05,
        "end.exploration_term": "positive",
        "end.tall": 0.5,
        "end.hard": 0.5,
    }
    stocked = {"end.stocked": 0.3} if task == "stack" else {}
    return changed(run, {**practised, **stocked, "data.tallest": 64})


def sampled(task):
    kind = "raw-dham" if task == "stack" else "dham"
    return changed(hard(task), {"model.kind": kind, "model.soft.sampled": True})


def trained(run, path):
    folder = RunFolder(path)
    folder.begin(run)
    return folder, [event for event in train(run, folder) if isinstance(event, Epoch)]


@pytest.mark.parametrize("task", ["stack", "sort"])
def test_it_learns_what_hard_attention_learns_to_the_bit(tmp_path, task):
    folder, epochs = trained(sampled(task), tmp_path / "sampled")
    twin, its_epochs = trained(hard(task), tmp_path / "hard")
    for name in ("weights", "average", "mean"):
        assert torch.equal(folder.read_state()[0][name], twin.read_state()[0][name])
    same = [ours.loss == its.loss for ours, its in zip(epochs, its_epochs, strict=True)]
    assert same == [True, True, True, False, False], "the end phase is validated softly"
    assert isinstance(load(folder.path).model.memory, SoftHAM)


def test_validation_is_soft_in_the_end_phase_alone_and_there_in_small_trees(tmp_path, monkeypatch):
    asked, evaluate = [], loop.evaluate

    def noting(model, *arguments, **named):
        asked.append((isinstance(model.memory, SoftHAM), named["conditions"]))
        return evaluate(model, *arguments, **named)

    monkeypatch.setattr(loop, "evaluate", noting)
    trained(changed(sampled("stack"), {"main.tall": 0.5}), tmp_path / "run")
    before, end = asked[:6], asked[6:]
    assert len(end) == 4
    assert not any(soft for soft, _ in before)
    assert max(conditions.tall for _, conditions in before) == 0.5
    assert all(soft for soft, _ in end)
    assert all(conditions.tall == conditions.stocked == 0 for _, conditions in end)
    assert max(conditions.hard for _, conditions in end) == 0.5


def test_stopped_and_resumed_it_comes_to_the_same_bits(tmp_path, monkeypatch):
    whole, _ = trained(sampled("stack"), tmp_path / "whole")
    monkeypatch.setattr(loop, "BATCHES_BETWEEN_REPORTS", 1)
    folder = RunFolder(tmp_path / "run")
    folder.begin(sampled("stack"))
    for _ in range(3):
        training = train(sampled("stack"), folder)
        for _ in range(5):
            next(training)
        training.close()
    for _ in train(sampled("stack"), folder):
        pass
    for name, tensor in whole.read_state()[0].items():
        assert torch.equal(folder.read_state()[0][name], tensor)


def test_turns_get_sure(tmp_path):
    """With a weight that outweighs all else."""
    heavy = {
        "end.exploration": 3.0,
        "end.exploration_decay": 1.0,
        "end.learning_rate": 0.02,
        "data.batches": 40,
    }
    _, epochs = trained(changed(sampled("stack"), heavy), tmp_path / "run")
    assert epochs[-1].entropy < 0.2 * epochs[-3].entropy
    assert epochs[-1].train_parts["exploration"] > 0


def test_what_is_trained_is_the_hard_network_with_the_same_parameters():
    from ham.train.state import State

    state = State(sampled("stack"))
    pairs = zip(state.model.parameters(), state.learner.parameters(), strict=True)
    assert all(ours is its for ours, its in pairs)
    assert not isinstance(state.learner.memory, SoftHAM)
    assert Gradient(state.learner, state.flat, state.run).tree_clip == 0
    plain = State(run_with("sort", Architecture(kind="dham", **SIZES)))
    assert plain.learner is plain.model


def test_only_soft_attention_can_be_learned_so():
    with pytest.raises(InputError, match=r"model\.soft is for models with soft attention, not for raw-ham"):
        Architecture(kind="raw-ham", soft=Soft(sampled=True))
    with pytest.raises(InputError, match=r"end\.stocked is for a memory that begins empty"):
        changed(sampled("stack"), {"model.soft.sampled": False})
