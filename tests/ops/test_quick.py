"""The usual access in one call of the engine: when it is taken, when not, and that it is the same access."""

from __future__ import annotations

import copy
import dataclasses
import gc

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import ham
from ham.core.errors import InputError
from ham.models.memory import Read, State
from ham.ops import native, quick, reference, table

pytestmark = pytest.mark.skipif(not native.available(), reason="there is no engine")

SIZE, QUERY, ROWS = 5, 6, 7
LEAVES, DEPTH = 8, 3


@pytest.fixture(autouse=True)
def auto():
    before = table._asked
    ham.set_backend("auto")
    yield
    table._asked = before
    table._allow_quick_accesses()


@pytest.fixture
def memory():
    torch.manual_seed(0)
    memory = ham.HAM(features=4, query=QUERY, size=SIZE, hidden=8)
    for parameter in memory.parameters():
        nn.init.uniform_(parameter, -0.5, 0.5)
    return memory


def start(memory, batch=3):
    return memory.init(torch.rand(batch, ROWS, 4, generator=torch.Generator().manual_seed(1)))


def queries(batch=3, seed=2):
    return torch.rand(batch, QUERY, generator=torch.Generator().manual_seed(seed))


def known(memory):
    """By one access."""
    state = start(memory)
    memory.update(state, memory.attend(state, queries()), queries())
    return memory


def attended(memory, state=None, query=None, uniforms=None):
    state = start(memory) if state is None else state
    return quick.attend(memory.search, state, queries() if query is None else query, uniforms, True, Read)


def updated(memory, state, read, active=None):
    return quick.update(memory.write, memory.join, state, read, queries(), active, State)


class TestWhenItIsTaken:
    def test_from_the_second_access_on(self, memory):
        assert attended(memory) is None
        known(memory)
        state = start(memory)
        read = attended(memory, state)
        assert isinstance(read, Read)
        fresh = updated(memory, state, read)
        assert isinstance(fresh, State)
        assert state.spent
        assert not fresh.spent
        assert updated(memory, state, read) is None

    def test_it_gives_what_a_dataclass_has(self, memory):
        read = attended(known(memory))
        assert {field.name for field in dataclasses.fields(Read)} == vars(read).keys()
        assert dataclasses.replace(read, leaf=read.leaf).leaf is read.leaf
        with pytest.raises(dataclasses.FrozenInstanceError):
            read.leaf = None
        assert {field.name for field in dataclasses.fields(State)} == vars(
            updated(memory, start(memory), read)
        ).keys()

    def test_a_copy_is_known_by_itself(self, memory):
        assert attended(copy.deepcopy(known(memory))) is None
        assert attended(memory)

    def test_under_inference_and_without_gradients(self, memory):
        known(memory)
        for mode in (torch.no_grad, torch.inference_mode):
            with mode():
                assert attended(memory).log_probs.requires_grad is False

    def test_queries_that_are_not_contiguous(self, memory):
        known(memory)
        wide = torch.rand(3, 2 * QUERY)
        found = attended(memory, query=wide[:, ::2])
        torch.testing.assert_close(
            found.turn_logits, attended(memory, query=wide[:, ::2].clone()).turn_logits
        )


class TestWhenItIsNot:
    @pytest.mark.parametrize(
        "change",
        {
            "another part": lambda m: m.search.__setitem__(1, nn.GELU()),
            "another dictionary of parameters": lambda m: setattr(
                m.search[0], "_parameters", dict(m.search[0]._parameters)
            ),
            "another dictionary of hooks": lambda m: setattr(
                m.search[0], "_forward_hooks", {0: lambda layer, given, made: made * 2}
            ),
            "a part more": lambda m: m.search.append(nn.ReLU()),
            "a hook": lambda m: m.search[0].register_forward_hook(lambda *_: None),
            "a buffer": lambda m: m.search.register_buffer("mask", torch.ones(1)),
            "a forward of its own": lambda m: setattr(m.search, "forward", lambda both: both[..., :1]),
            "another class": lambda m: setattr(m.search, "__class__", nn.Sequential),
            "another parameter": lambda m: setattr(
                m.search[0], "weight", nn.Parameter(m.search[0].weight.detach() * 2)
            ),
            "float64": lambda m: m.search.double(),
            "another shape": lambda m: setattr(
                m.search[0].weight, "data", m.search[0].weight.data.reshape(SIZE + QUERY, 8)
            ),
        }.items(),
        ids=lambda change: change[0],
    )
    def test_changed_modules(self, memory, change):
        change[1](known(memory))
        assert attended(memory) is None

    def test_changed_settings_of_join(self, memory):
        known(memory).join.top = 1.0
        state = start(memory)
        assert updated(memory, state, attended(memory, state)) is None
        assert not state.spent

    @pytest.mark.parametrize(
        "query",
        {
            "another width": torch.zeros(3, QUERY + 1),
            "another batch": torch.zeros(2, QUERY),
            "another type": torch.zeros(3, QUERY, dtype=torch.float64),
            "no tensor": [[0.0] * QUERY] * 3,
            "another device": torch.zeros(3, QUERY, device="meta"),
        }.items(),
        ids=lambda query: query[0],
    )
    def test_unusual_queries(self, memory, query):
        assert attended(known(memory), query=query[1]) is None

    def test_a_class_of_tensors(self, memory):
        class Own(torch.Tensor):
            pass

        assert attended(known(memory), query=queries().as_subclass(Own)) is None

    def test_unusual_uniforms_and_leaves(self, memory):
        state = start(known(memory))
        assert attended(memory, state, uniforms=torch.full((3, DEPTH), torch.nan)) is None
        assert attended(memory, state, uniforms=torch.rand(3, DEPTH + 1)) is None
        read = attended(memory, state)
        assert updated(memory, state, dataclasses.replace(read, leaf=read.leaf + LEAVES)) is None
        assert updated(memory, state, read, active=torch.ones(3)) is None
        assert not state.spent

    def test_surroundings(self, memory):
        class Watch(TorchDispatchMode):
            def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
                return operation(*args, **(kwargs or {}))

        state = start(known(memory))
        for context in (
            torch.autocast("cpu"),
            Watch(),
            torch.autograd.forward_ad.dual_level(),
            torch.device("cpu"),
        ):
            with context:
                assert attended(memory, state) is None
        seen = []
        torch.func.grad(lambda x: (seen.append(attended(memory, state)), x.sum())[1])(torch.ones(1))
        assert seen == [None]
        assert attended(memory, state)

    def test_who_asked_for_another_engine(self, memory, monkeypatch):
        known(memory)
        ham.set_backend("reference")
        assert attended(memory) is None
        ham.set_backend("native")
        assert attended(memory)
        monkeypatch.setattr(table, "_asked", None)
        table._allow_quick_accesses()
        assert attended(memory)
        monkeypatch.setenv("HAM_BACKEND", "reference")
        assert attended(memory) is None

    def test_another_engine_that_is_asked_before(self, memory, monkeypatch):
        class Toy:
            name = "toy"

        known(memory)
        monkeypatch.setattr(table, "_engines", [Toy()])
        table._allow_quick_accesses()
        assert attended(memory) is None

    def test_modules_that_are_gone(self, memory):
        """Numbers of modules are used again."""
        known(memory)
        for _ in range(20):
            other = copy.deepcopy(memory)
            assert attended(other) is None
            known(other)
            del other
            gc.collect()


def test_it_draws_the_numbers_of_torch(memory):
    known(memory)
    state = start(memory, 40)
    query = queries(40)
    torch.manual_seed(3)
    found = memory.attend(state, query)
    after = torch.rand(2)
    torch.manual_seed(3)
    right = memory.attend(state, query, uniforms=torch.rand(40, DEPTH))
    assert torch.equal(found.leaf, right.leaf)
    assert torch.equal(found.log_probs, right.log_probs)
    assert torch.equal(after, torch.rand(2))
    memory.eval()
    greedy = memory.attend(state, query)
    assert torch.equal(greedy.turns, greedy.turn_logits > 0)


def test_weights_that_change_within_a_chain(memory):
    """Gradients of weights go back along the accesses; those of other weights must not mix with them."""
    other = copy.deepcopy(memory)
    for parameter in other.parameters():
        parameter.data.mul_(-0.7)

    def gradients():
        state, loss = start(memory), torch.zeros(())
        for step, (reads, writes) in enumerate(
            ((memory, memory), (other, memory), (memory, other), (memory, memory), (other, other))
        ):
            query = queries(seed=step).requires_grad_()
            read = reads.attend(state, query, uniforms=queries(seed=step)[:, :DEPTH])
            state = writes.update(state, read, query)
            loss = loss + read.log_probs.sum() + read.value.square().sum()
        asked = [*memory.parameters(), *other.parameters()]
        return torch.autograd.grad(loss + state.tree.sum(), asked, allow_unused=True)

    gradients()
    found = gradients()
    ham.set_backend("reference")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reference, "_chained", lambda *_: False)
        right = gradients()
    for one, another in zip(found, right, strict=True):
        assert (one is None) == (another is None)
        if one is not None:
            torch.testing.assert_close(one, another, rtol=1e-4, atol=1e-5)


def test_a_gradient_of_weights_that_somebody_keeps(memory):
    """What a captured gradient was stays: backward twice gives twice the same."""
    known(memory)
    state, query = start(memory), queries()
    loss = torch.zeros(())
    for _ in range(3):
        read = memory.attend(state, query, uniforms=torch.full((3, DEPTH), 0.5))
        state = memory.update(state, read, query)
        loss = loss + read.log_probs.sum()
    asked = list(memory.parameters())[4:]
    first = torch.autograd.grad(loss + state.tree.sum(), asked, retain_graph=True, allow_unused=True)
    kept = [None if gradient is None else gradient.clone() for gradient in first]
    again = torch.autograd.grad(loss + state.tree.sum(), asked, allow_unused=True)
    for one, two, three in zip(first, kept, again, strict=True):
        assert one is two is three is None or (torch.equal(one, two) and torch.equal(one, three))


def test_a_tree_that_is_a_part_of_another_tensor_is_refused(memory):
    whole = start(memory).tree * 1.0
    with pytest.raises(
        InputError, match=r"part of another tensor, whose gradient would be lost; clone\(\) it"
    ):
        memory.attend(State(whole[:2]), queries(2))
    assert memory.attend(State(whole[:2].clone()), queries(2)).leaf.shape == (2,)
