"""Whatever PyTorch lets one do to the memory is right, by the engine that `auto` takes, or refused in one line.

The measure is plain autograd: the same accesses by indexing, on a tree that is never changed in place.
"""

from __future__ import annotations

import copy
import gc
import pickle
import threading
import weakref

import pytest
import torch
from torch import nn
from torch._subclasses import FakeTensorMode
from torch.nn.utils import prune
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

import ham
from ham.core.errors import InputError
from ham.models.memory import State
from ham.ops import native, reference

pytestmark = pytest.mark.skipif(not native.available(), reason=native.why_not() or "available")
ROWS, LEAVES, DEPTH, SIZE, QUERY = 21, 32, 5, 6, 7


@pytest.fixture(params=["auto", "reference"], autouse=True)
def engine(request, plain_pytorch):
    ham.set_backend(request.param)
    return request.param


@pytest.fixture
def memory():
    torch.manual_seed(3)
    made = ham.HAM(features=4, query=QUERY, size=SIZE, hidden=8)
    for parameter in made.parameters():
        nn.init.uniform_(parameter, -0.5, 0.5)
    return made


@pytest.fixture
def cell():
    torch.manual_seed(4)
    return nn.GRUCell(SIZE, QUERY)


def uniforms(step, batch=3):
    return torch.rand(batch, DEPTH, generator=torch.Generator().manual_seed(step), dtype=torch.float32)


def loop(memory, cell, x, *, steps=4):
    """A few accesses, and a loss on all that they give."""
    state, h, loss = memory.init(x), x.new_zeros(len(x), QUERY), 0.0
    for step in range(steps):
        read = memory.attend(state, h, uniforms=uniforms(step, len(x)))
        h = cell(read.value, h)
        state = memory.update(state, read, h)
        loss = loss + read.log_probs.sum() + read.value.square().sum()
    return loss + h.sum() + state.tree.square().sum()


def rows(batch=3):
    return torch.rand(batch, ROWS, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float32)


def gradients(memory, cell, run):
    for module in (memory, cell):
        module.zero_grad()
    loss = run(memory, cell, rows())
    loss.backward()
    found = [p.grad for m in (memory, cell) for p in m.parameters() if p.grad is not None]
    return loss.detach(), torch.cat([gradient.flatten() for gradient in found])


def plainly(memory, cell, run=loop):
    """By indexing alone."""
    before = ham.ops.backend()
    ham.set_backend("reference")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reference, "_chained", lambda *_: False)
        found = gradients(memory, cell, run)
    ham.set_backend(before)
    return found


def assert_same(found, right):
    for one, other in zip(found, right, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_the_loop_is_what_plain_autograd_says(memory, cell):
    assert_same(gradients(memory, cell, loop), plainly(memory, cell))


class Own(nn.Module):
    """A SEARCH of one's own, of the paper's shapes."""

    def __init__(self, old):
        super().__init__()
        self.first, self.last = old[0], old[2]

    def forward(self, both):
        return self.last(torch.tanh(self.first(both)))


def transposed(layer):
    return nn.Parameter(layer.weight.detach().t().contiguous().t())


class TestChangedParts:
    """A researcher who changes one equation gets that equation."""

    CHANGES = {
        "another activation": lambda m: m.search.__setitem__(1, nn.GELU()),
        "another activation in JOIN": lambda m: m.join.__setitem__(1, nn.Tanh()),
        "a module of one's own": lambda m: setattr(m, "search", Own(m.search)),
        "a third layer": lambda m: m.search.append(nn.ReLU()).append(nn.Linear(1, 1)),
        "a hook": lambda m: m.join.register_forward_hook(lambda module, given, result: result * 0.5),
        "a hook before": lambda m: m.search[0].register_forward_pre_hook(
            lambda module, given: (given[0] * 2,)
        ),
        "a weight norm": lambda m: nn.utils.parametrizations.weight_norm(m.search[0]),
        "a pruned layer": lambda m: prune.random_unstructured(m.write.gate[0], "weight", 0.5),
        "no bias": lambda m: setattr(m.search[0], "bias", None),
        "a forward of one's own": lambda m: setattr(m.search, "forward", lambda both: both[..., :1]),
        "weights that are not contiguous": lambda m: setattr(m.search[0], "weight", transposed(m.search[0])),
        "a ceiling of JOIN alone": lambda m: setattr(m.join, "top", 1.0),
        "a grid of WRITE alone": lambda m: setattr(m.write, "grid", 4),
    }

    @pytest.mark.parametrize("change", CHANGES)
    def test_before_the_first_access(self, memory, cell, change):
        self.CHANGES[change](memory)
        assert_same(gradients(memory, cell, loop), plainly(memory, cell))

    @pytest.mark.parametrize("change", CHANGES)
    def test_after_accesses_that_went_well(self, memory, cell, change):
        """What was found to be the paper's once is not trusted for ever."""
        gradients(memory, cell, loop)
        self.CHANGES[change](memory)
        assert_same(gradients(memory, cell, loop), plainly(memory, cell))

    def test_native_names_what_it_does_not_know(self, memory, cell):
        ham.set_backend("native")
        memory.search[1] = nn.GELU()
        with pytest.raises(InputError, match="does not serve attend: MLP has a part of class GELU"):
            loop(memory, cell, rows())

    def test_a_hook_on_all_modules_is_seen(self, memory, cell):
        handle = nn.modules.module.register_module_forward_hook(
            lambda module, given, result: result * 0.5 if isinstance(module, nn.ReLU) else None
        )
        try:
            assert_same(gradients(memory, cell, loop), plainly(memory, cell))
        finally:
            handle.remove()


class TestSavedTensors:
    """What backward needs are ordinary saved tensors."""

    @pytest.mark.parametrize("reentrant", [False, True])
    def test_checkpointing(self, memory, cell, reentrant):
        def run(memory, cell, x):
            return checkpoint(lambda x: loop(memory, cell, x), x.requires_grad_(), use_reentrant=reentrant)

        assert_same(gradients(memory, cell, run), plainly(memory, cell))

    def test_hooks_that_clone(self, memory, cell):
        def run(memory, cell, x):
            with torch.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t):
                return loop(memory, cell, x)

        assert_same(gradients(memory, cell, run), plainly(memory, cell))

    def test_hooks_that_store_on_disk(self, memory, cell, tmp_path):
        def pack(tensor):
            file = tmp_path / f"{len(list(tmp_path.iterdir()))}.pt"
            torch.save(tensor, file)
            return file

        def run(memory, cell, x):
            with torch.autograd.graph.saved_tensors_hooks(pack, lambda file: torch.load(file)):
                return loop(memory, cell, x)

        assert_same(gradients(memory, cell, run), plainly(memory, cell))

    def test_what_comes_back_changed_is_refused(self, memory, cell, engine):
        if engine == "reference":
            pytest.skip("its saved tensors are numbers of nodes, which PyTorch checks")
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: torch.full_like(t, 7)):
            loss = loop(memory, cell, rows())
        with pytest.raises(ValueError, match="what was saved for backward has been changed"):
            loss.backward()

    def test_backward_twice(self, memory, cell):
        def run(memory, cell, x):
            loss = loop(memory, cell, x)
            loss.backward(retain_graph=True)
            return loss

        loss, twice = gradients(memory, cell, run)
        right_loss, right = plainly(memory, cell)
        assert_same((loss, twice), (right_loss, 2 * right))

    def test_a_second_derivative_is_refused(self, memory, cell, engine):
        if engine == "reference":
            pytest.skip("plain PyTorch says so itself, where it cannot")
        loss = loop(memory, cell, rows())
        with pytest.raises((ValueError, RuntimeError), match="leave out create_graph"):
            twice_differentiated(loss, memory.search[0].weight)


def twice_differentiated(loss, weight):
    (first,) = torch.autograd.grad(loss, weight, create_graph=True)
    first.sum().backward()


class TestGradientsOfTrees:
    """A gradient tree is changed in place only if nobody else holds it."""

    def test_a_gradient_asked_for_between_two_accesses(self, memory, cell):
        def run(memory, cell, x, kept):
            state = memory.init(x)
            h = torch.zeros(len(x), QUERY)
            for step in range(3):
                if step == 1:
                    state.tree.retain_grad() if kept is None else state.tree.register_hook(kept.append)
                    middle = state.tree
                read = memory.attend(state, h, uniforms=uniforms(step))
                h = cell(read.value, h)
                state = memory.update(state, read, h)
            (h.sum() + state.tree.square().sum()).backward()
            return middle.grad if kept is None else kept[0]

        kept: list = []
        found = run(memory, cell, rows(), kept)
        ham.set_backend("reference")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(reference, "_chained", lambda *_: False)
            right = run(memory, cell, rows(), None)
        torch.testing.assert_close(found, right)

    @pytest.mark.parametrize("seed", range(10))
    def test_addresses_that_are_used_again(self, memory, seed):
        """Trees that are cloned, dropped and added up: whose storage a gradient has says nothing of whose it is."""

        def run(chained):
            torch.manual_seed(seed)
            with pytest.MonkeyPatch.context() as patch:
                if not chained:
                    patch.setattr(reference, "_chained", lambda *_: False)
                first, second = memory.init(rows()), memory.init(rows() + 1)
                query = torch.ones(3, QUERY)
                for step in range(2):
                    first = memory.update(first, memory.attend(first, query, uniforms=uniforms(step)), query)
                    second = memory.update(
                        second, memory.attend(second, query, uniforms=uniforms(step)), query
                    )
                copied = first.clone()
                del first
                both = State(copied.tree + second.tree)
                both = memory.update(both, memory.attend(both, query, uniforms=uniforms(7)), query)
                memory.zero_grad()
                (both.tree.square().sum() + second.tree.sum()).backward()
            return torch.cat([p.grad.flatten() for p in memory.parameters() if p.grad is not None])

        found = run(chained=True)
        ham.set_backend("reference")
        torch.testing.assert_close(found, run(chained=False), rtol=1e-4, atol=1e-4)

    def test_one_gradient_tree_goes_through_all_accesses(self, memory):
        """That is why backward costs no more than forward: more accesses make no more copies of a tree."""

        def copies(steps):
            state, query = memory.init(rows()), torch.ones(3, QUERY)
            for step in range(steps):
                state = memory.update(state, memory.attend(state, query, uniforms=uniforms(step)), query)
            loss = state.tree.square().sum()
            with torch.autograd.profiler.profile() as profile:
                loss.backward()
            return sum(event.name == "aten::clone" for event in profile.function_events)

        copies(1)  # the first access of a memory packs its weights for itself
        assert copies(2) == copies(9)


def test_a_read_used_twice_and_a_deep_copy(memory, cell):
    def run(memory, cell, x):
        state, h = memory.init(x), torch.zeros(len(x), QUERY)
        read = memory.attend(state, h, uniforms=uniforms(0))
        h = cell(read.value, h) + cell(read.value * 2, h)
        state = memory.update(state, read, h)
        again = memory.attend(state, h, uniforms=uniforms(1))
        return read.value.sum() + read.log_probs.sum() + again.value.sum() + again.turn_logits.sum()

    assert_same(gradients(copy.deepcopy(memory), cell, run), plainly(memory, cell, run))


class TestSurroundings:
    def test_another_default_dtype(self, memory, cell):
        right = plainly(memory, cell)
        for dtype in (torch.float64, torch.float16, torch.bfloat16):
            torch.set_default_dtype(dtype)
            try:
                found = gradients(memory, cell, loop)
            finally:
                torch.set_default_dtype(torch.float32)
            assert_same(found, right)

    def test_another_default_device(self, memory, cell):
        right = plainly(memory, cell)
        x = rows()

        def run(memory, cell, _):
            state, h, loss = memory.init(x), x.new_zeros(len(x), QUERY), 0.0
            drawn = [uniforms(step) for step in range(4)]
            with torch.device("meta"):
                for step in range(4):
                    read = memory.attend(state, h, uniforms=drawn[step])
                    h = cell(read.value, h)
                    state = memory.update(state, read, h)
                    loss = loss + read.log_probs.sum() + read.value.square().sum()
            return loss + h.sum() + state.tree.square().sum()

        assert_same(gradients(memory, cell, run), right)

    def test_solving_after_a_change_of_the_default(self):
        torch.set_default_dtype(torch.float64)
        try:
            answer = ham.solve("sort", "7:1 3:9 5:5")
        finally:
            torch.set_default_dtype(torch.float32)
        assert answer.right

    def test_autocast(self, memory, cell):
        def run(memory, cell, x):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return loop(memory, cell, x)

        found, right = gradients(memory, cell, run), plainly(memory, cell, run)
        for one, other in zip(found, right, strict=True):
            torch.testing.assert_close(one, other, rtol=0.05, atol=0.05)

    def test_negated_views(self, memory):
        state, query = memory.init(rows()), torch.randn(3, QUERY)
        negated = torch._neg_view(query)
        with torch.no_grad():
            found = memory.attend(state, negated, uniforms=uniforms(0)).turn_logits
            right = memory.attend(state, -query, uniforms=uniforms(0)).turn_logits
        torch.testing.assert_close(found, right)

    def test_emptied_storages(self, memory, engine):
        if engine == "reference":
            pytest.skip("PyTorch itself reads them, and ends there")
        emptied = torch.randn(3, QUERY)
        emptied.untyped_storage().resize_(0)
        with pytest.raises(InputError, match="query has no storage"):
            memory.attend(memory.init(rows()), emptied, uniforms=uniforms(0))

    def test_threads_on_one_graph_and_on_their_own(self, memory, cell):
        _, right = plainly(memory, cell)
        loss = loop(memory, cell, rows())
        parameters = [*memory.parameters(), *cell.parameters()]
        found = [None] * 8

        def backward(number):
            own = loss if number % 2 else loop(memory, cell, rows())
            found[number] = torch.autograd.grad(own, parameters, retain_graph=True, allow_unused=True)

        threads = [threading.Thread(target=backward, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for gradient in found:
            whole = torch.cat([part.flatten() for part in gradient if part is not None])
            torch.testing.assert_close(whole, right, rtol=1e-4, atol=1e-4)


class Around(nn.Module):
    """A network whose only part is the memory."""

    def __init__(self, memory, cell):
        super().__init__()
        self.memory, self._cell = memory, (cell,)

    def forward(self, x):
        return loop(self.memory, *self._cell, x)


class TestParameters:
    """What is done to parameters between accesses, and around them."""

    def test_numbers_that_change_between_accesses(self, memory, cell):
        """By way of `data`, of which autograd is not told."""
        first = copy.deepcopy(memory)

        def run(memory, cell, x):
            memory.load_state_dict(first.state_dict())
            loss = loop(memory, cell, x)
            for parameter in memory.parameters():
                parameter.data.mul_(1.1)
            return loss.detach() + loop(memory, cell, x)

        assert_same(gradients(memory, cell, run), plainly(memory, cell, run))

    def test_another_tensor_behind_a_parameter(self, memory, cell):
        gradients(memory, cell, loop)
        memory.search[0].weight.data = torch.randn(8, SIZE + QUERY)
        assert_same(gradients(memory, cell, loop), plainly(memory, cell))
        memory.search[0].weight.data = torch.randn(SIZE + QUERY, 8).t()
        assert_same(gradients(memory, cell, loop), plainly(memory, cell))

    def test_changed_before_backward(self, memory, engine):
        """The engine has kept the numbers that it went forward with; PyTorch has not, and says so."""
        as_it_was, query = copy.deepcopy(memory), torch.ones(3, QUERY)

        def loss(memory):
            return memory.attend(memory.init(rows()), query, uniforms=uniforms(0)).log_probs.sum()

        found = loss(memory)
        with torch.no_grad():
            memory.search[2].weight.mul_(3)
        if engine == "reference":
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                found.backward()
            return
        found.backward()
        loss(as_it_was).backward()
        torch.testing.assert_close(memory.search[0].weight.grad, as_it_was.search[0].weight.grad)

    def test_asked_for_gradients_and_not(self, memory, cell):
        for asked in (("search.0.weight",), (), ("join.0.bias", "write.gate.2.weight")):
            for name, parameter in memory.named_parameters():
                parameter.requires_grad_(name in asked)
                parameter.grad = None
            assert_same(gradients(memory, cell, loop), plainly(memory, cell))

    def test_assigned_by_a_state_dict(self, memory, cell):
        gradients(memory, cell, loop)
        memory.load_state_dict(
            {name: tensor * 0.7 for name, tensor in memory.state_dict().items()}, assign=True
        )
        assert_same(gradients(memory, cell, loop), plainly(memory, cell))

    def test_swapped(self, memory, cell):
        gradients(memory, cell, loop)
        memory.zero_grad()
        other = nn.Parameter(memory.search[0].weight.detach() * 0.3)
        torch.utils.swap_tensors(memory.search[0].weight, other)
        assert_same(gradients(memory, cell, loop), plainly(memory, cell))

    def test_tied(self, memory, cell):
        memory.write.gate[0].weight = memory.write.candidate[0].weight
        assert_same(gradients(memory, cell, loop), plainly(memory, cell))
        memory.write.gate = memory.write.candidate
        assert_same(gradients(memory, cell, loop), plainly(memory, cell))

    @pytest.mark.parametrize("computed", [False, True])
    def test_given_from_outside(self, memory, cell, computed):
        """By `functional_call`: leaves of their own, or computed from another tensor."""
        around, scale = Around(memory, cell), torch.tensor(0.5, requires_grad=True)
        plain = {name: parameter.detach() for name, parameter in around.named_parameters()}

        def gradient():
            given = {name: tensor * scale for name, tensor in plain.items()}
            if not computed:
                given = {name: tensor.detach().requires_grad_() for name, tensor in given.items()}
            loss = torch.func.functional_call(around, given, (rows(),))
            asked = [scale] if computed else [given["memory.search.0.weight"], given["memory.join.2.bias"]]
            return torch.autograd.grad(loss, asked)

        found, again = gradient(), gradient()
        ham.set_backend("reference")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(reference, "_chained", lambda *_: False)
            right = gradient()
        assert_same(found, right)
        assert_same(again, right)
        ham.set_backend("auto")
        assert_same(gradients(memory, cell, loop), plainly(memory, cell))

    def test_hooks_see_the_whole_gradient_once(self, memory, cell):
        gradients(memory, cell, loop)
        seen, accumulated = [], []
        weight = memory.search[0].weight
        weight.register_hook(lambda gradient: seen.append(gradient.clone()))
        weight.register_post_accumulate_grad_hook(
            lambda parameter: accumulated.append(parameter.grad.clone())
        )
        gradients(memory, cell, loop)
        assert len(seen) == len(accumulated) == 1
        torch.testing.assert_close(seen[0], accumulated[0])

    def test_gradients_share_no_memory(self, memory, cell):
        gradients(memory, cell, loop)
        places = [parameter.grad.untyped_storage().data_ptr() for parameter in memory.parameters()]
        assert len(set(places)) == len(places)

    def test_after_inference(self, memory, cell):
        with torch.inference_mode():
            loop(memory, cell, rows())
        assert_same(gradients(memory, cell, loop), plainly(memory, cell))


class TestModules:
    def test_pickled(self, memory, cell):
        gradients(memory, cell, loop)
        again = pickle.loads(pickle.dumps(memory))
        assert_same(gradients(again, cell, loop), plainly(memory, cell))

    def test_a_part_that_a_subclass_computes(self, cell):
        class Flat(ham.HAM):
            @property
            def search(self):
                return nn.Sequential(self._modules["search"], nn.Tanh())

        torch.manual_seed(0)
        memory = Flat(features=4, query=QUERY, size=SIZE, hidden=8)
        assert_same(gradients(memory, cell, loop), plainly(memory, cell))

    def test_what_is_not_used_any_more_goes(self, cell):
        memory = ham.HAM(features=4, query=QUERY, size=SIZE, hidden=8)
        gradients(memory, cell, loop)
        gone = [weakref.ref(part) for part in (memory, memory.search, memory.write.gate[0])]
        del memory
        gc.collect()
        assert [reference() for reference in gone] == [None, None, None]

    def test_somebody_who_watches_every_call(self, memory, cell):
        called = []

        class Watch(TorchDispatchMode):
            def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
                called.append(operation.namespace)
                return operation(*args, **(kwargs or {}))

        with Watch():
            found = gradients(memory, cell, loop)
        assert_same(found, plainly(memory, cell))
        assert ("ham" in called) == (ham.ops.backend() == "auto")

    def test_tensors_without_numbers(self):
        with FakeTensorMode():
            memory = ham.HAM(features=4, query=QUERY, size=SIZE, hidden=8)
            state, query = memory.init(torch.rand(3, ROWS, 4)), torch.rand(3, QUERY)
            read = memory.attend(state, query, uniforms=torch.rand(3, DEPTH))
            assert memory.update(state, read, query).tree.shape == (3, 2 * LEAVES, SIZE)


class TestRefusals:
    @pytest.mark.filterwarnings("ignore::DeprecationWarning")
    def test_a_trace_that_forgets_decisions(self, memory):
        with pytest.raises(InputError, match=r"torch\.jit\.trace does not follow"):
            torch.jit.trace(lambda x: memory.init(x).tree, rows())

    @pytest.mark.parametrize("lengths", [[9, 9], [-1, 2], [6, 1]])
    def test_lengths_that_no_row_has(self, lengths):
        with pytest.raises(InputError, match=r"lengths must lie in 0 … 5"):
            ham.HAM(features=3, query=4, size=4).init(torch.rand(2, 5, 3), torch.tensor(lengths))

    def test_a_query_of_another_width(self, memory, unchecked):
        with pytest.raises(InputError, match=r"the query must have shape \(3, 7\), got \(3, 5\)"):
            memory.attend(memory.init(rows()), torch.zeros(3, 5))

    def test_a_forged_leaf(self, memory):
        state, query = memory.init(rows()), torch.zeros(3, QUERY)
        read = memory.attend(state, query)
        read.leaf[1] = -1
        with pytest.raises(InputError, match="leaf must be between 0 and 31, got -1"):
            memory.update(state, read, query)

    def test_a_hard_read_written_softly(self):
        soft, hard = (kind(features=4, query=QUERY, size=SIZE) for kind in (ham.SoftHAM, ham.HAM))
        query = torch.zeros(3, QUERY)
        read = hard.attend(hard.init(rows()), query)
        with pytest.raises(InputError, match="this read is of another kind of memory"):
            soft.update(soft.init(rows()), read, query)

    def test_a_module_that_does_not_fit(self):
        memory = ham.HAM(features=4, query=QUERY, size=SIZE, embed=nn.Linear(4, SIZE + 1))
        with pytest.raises(InputError, match=r"embed must give a tensor of shape \(3, 21, 6\)"):
            memory.init(rows())
