"""Gradients of the in-place accesses against an implementation that knows no tree tensor at all."""

import pytest
import torch
from torch.nn import functional as F

import ham
from ham.core.errors import InputError
from ham.models import HAM, State
from ham.ops.episode import Penalties

BATCH, LEAVES, FEATURES, QUERY, SIZE, STEPS = 3, 4, 3, 2, 4, 3


class Plain:
    """One example's memory as a dictionary from node to value, on plain autograd."""

    def __init__(self, memory, x, length, leaves):
        self.memory, self.leaves = memory, leaves
        self.node = {
            leaves + i: memory.embed(x[i]) if i < length else x.new_zeros(memory.size) for i in range(leaves)
        }
        for e in range(leaves - 1, 0, -1):
            self.node[e] = memory.join(torch.cat([self.node[2 * e], self.node[2 * e + 1]]))

    def attend(self, query, leaf):
        log_probs, entropies = [], []
        e = 1
        for level in reversed(range((self.leaves - 1).bit_length())):
            p = torch.sigmoid(self.memory.search(torch.cat([self.node[e], query])))[0]
            right = leaf >> level & 1
            log_probs.append(torch.log(p if right else 1 - p))
            entropies.append(-p * torch.log(p) - (1 - p) * torch.log(1 - p))
            e = 2 * e + right
        nothing = query.new_zeros(0)
        return (
            torch.stack(log_probs) if log_probs else nothing,
            torch.stack(entropies) if entropies else nothing,
            self.node[e],
        )

    def update(self, query, leaf):
        e = self.leaves + leaf
        self.node = dict(self.node)
        h, both = self.node[e], torch.cat([self.node[e], query])
        t = torch.sigmoid(self.memory.write.gate(both))
        self.node[e] = t * torch.sigmoid(self.memory.write.candidate(both)) + (1 - t) * h
        while e > 1:
            e //= 2
            self.node[e] = self.memory.join(torch.cat([self.node[2 * e], self.node[2 * e + 1]]))

    def tree(self):
        return torch.stack(
            [torch.zeros_like(self.node[1]), *(self.node[e] for e in range(1, 2 * self.leaves))]
        )


class Case:
    """A memory and a few timesteps of it, with random weights on everything that comes out."""

    def __init__(self, engine="reference", *, leaves=LEAVES, depth=2, reads=1):
        self.dtype = torch.float64 if engine == "reference" else torch.float32
        self.tolerance = (
            {"rtol": 1e-10, "atol": 1e-12} if engine == "reference" else {"rtol": 1e-4, "atol": 1e-5}
        )
        self.leaves, self.reads = leaves, reads
        self.memory = HAM(FEATURES, QUERY, SIZE, hidden=5, depth=depth).to(self.dtype)
        for parameter in self.memory.parameters():
            parameter.data += 0.1 * torch.randn_like(parameter)
        self.x = torch.randn(BATCH, leaves, FEATURES, dtype=self.dtype, requires_grad=True)
        self.queries = torch.randn(STEPS, 2, BATCH, QUERY, dtype=self.dtype, requires_grad=True)
        self.lengths = torch.randint(1, leaves + 1, (BATCH,))
        self.leaf = torch.randint(leaves, (STEPS, reads, BATCH))
        self.active = torch.rand(STEPS, BATCH) < 0.8

    def in_place(self):
        """log-probabilities, entropies, values and the last tree from the memory under test."""
        return self.with_pull(0.0)[0]

    def with_pull(self, pull):
        """The same, and what the pull costs."""
        penalties = Penalties(pull)
        state = self.memory.init(self.x, self.lengths, self.leaves, penalties=penalties)
        log_probs, entropies, values = [], [], []
        for t in range(STEPS):
            for r in range(self.reads):
                read = self.memory.attend(state, self.queries[t, 0] * (r + 1), leaf=self.leaf[t, r])
                log_probs.append(read.log_probs)
                entropies.append(read.entropies)
                values.append(read.value)
            asked = {"active": self.active[t], "penalties": penalties}
            state = self.memory.update(state, read, self.queries[t, 1], **asked)
        found = torch.stack(log_probs), torch.stack(entropies), torch.stack(values), state.tree
        return found, state.pull

    def plain(self):
        log_probs, entropies, values, trees = [], [], [], []
        for b in range(BATCH):
            memory = Plain(self.memory, self.x[b], int(self.lengths[b]), self.leaves)
            for t in range(STEPS):
                for r in range(self.reads):
                    read = memory.attend(self.queries[t, 0, b] * (r + 1), int(self.leaf[t, r, b]))
                    for kept, new in zip((log_probs, entropies, values), read, strict=True):
                        kept.append(new)
                if self.active[t, b]:
                    memory.update(self.queries[t, 1, b], int(self.leaf[t, -1, b]))
            trees.append(memory.tree())

        def by_time(items):
            return torch.stack(items).unflatten(0, (BATCH, STEPS * self.reads)).transpose(0, 1)

        return by_time(log_probs), by_time(entropies), by_time(values), torch.stack(trees)

    def loss(self, parts, seed=7):
        random = torch.Generator().manual_seed(seed)
        return sum(
            (part * torch.randn(part.shape, generator=random, dtype=self.dtype)).sum() for part in parts
        )

    @property
    def inputs(self):
        return [self.x, self.queries, *self.memory.parameters()]


def same(case, ours, theirs):
    for mine, plain in zip(ours, theirs, strict=True):
        mine = torch.zeros_like(plain) if mine is None else mine
        torch.testing.assert_close(mine, plain, **case.tolerance)


@pytest.mark.parametrize("leaves", [1, 2, 4, 8])
@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("reads", [1, 2])
def test_values_and_gradients_equal_plain_autograd(engine, leaves, depth, reads):
    case = Case(engine, leaves=leaves, depth=depth, reads=reads)
    ours, plain = case.in_place(), case.plain()
    same(case, ours, plain)
    gradients = torch.autograd.grad(case.loss(plain), case.inputs, materialize_grads=True)
    same(case, torch.autograd.grad(case.loss(ours), case.inputs, materialize_grads=True), gradients)


@pytest.mark.parametrize("leaves", [2, 8])
@pytest.mark.parametrize("times", [0.0, 1.0, 2.5])
def test_the_pull_is_half_the_squares_of_all_that_join_made(leaves, times):
    """Its gradient is there as often as the loss has its cost."""
    ham.set_backend("reference")
    case, made = Case(leaves=leaves), []
    with case.memory.join.register_forward_hook(lambda _module, _pair, joined: made.append(joined)):
        plain = case.loss(case.plain())
    expected = 0.3 / 2 * sum(joined.square().sum() for joined in made)
    gradients = torch.autograd.grad(plain + times * expected, case.inputs, materialize_grads=True)
    found, cost = case.with_pull(0.3)
    torch.testing.assert_close(cost, expected)
    ours = torch.autograd.grad(case.loss(found) + times * cost, case.inputs, materialize_grads=True)
    same(case, ours, gradients)


def test_nothing_is_pulled_where_nothing_is_joined():
    assert Case(leaves=1).with_pull(0.3)[1] is None


def test_an_update_with_a_pull_is_the_references_and_says_so(caplog):
    ham.set_backend("auto")
    memory = HAM(FEATURES, QUERY, SIZE)
    state, query = memory.init(torch.randn(2, 4, FEATURES)), torch.randn(2, QUERY)
    state = memory.update(state, memory.attend(state, query), query, penalties=Penalties(pull=0.1))
    assert state.pull is not None
    ham.set_backend("native")
    with pytest.raises(InputError, match="does not serve update: a pull on what JOIN makes"):
        memory.update(state, memory.attend(state, query), query, penalties=Penalties(pull=0.1))


def test_an_empty_memory_is_pulled_like_one_without_items(engine):
    case, penalties = Case(engine, leaves=8), Penalties(pull=0.3)
    weights = list(case.memory.join.parameters())
    states = (
        case.memory.empty(BATCH, 8, penalties=penalties),
        case.memory.init(case.x, torch.zeros_like(case.lengths), 8, penalties=penalties),
    )
    torch.testing.assert_close(states[0].pull, states[1].pull)
    losses = [case.loss([state.tree]) + state.pull for state in states]
    same(case, *(torch.autograd.grad(loss, weights) for loss in losses))


@pytest.mark.parametrize("part", range(4))
def test_each_output_alone(engine, part):
    case = Case(engine)
    ours, plain = case.in_place()[part], case.plain()[part]
    gradients = torch.autograd.grad(case.loss([plain]), case.inputs, materialize_grads=True)
    same(case, torch.autograd.grad(case.loss([ours]), case.inputs, materialize_grads=True), gradients)


def test_frozen_parameters_get_no_gradient_and_the_others_the_right_one(engine):
    case = Case(engine)
    for parameter in [*case.memory.join.parameters(), *case.memory.search.parameters()]:
        parameter.requires_grad_(False)
    inputs = [tensor for tensor in case.inputs if tensor.requires_grad]
    ours = torch.autograd.grad(case.loss(case.in_place()), inputs)
    same(case, ours, torch.autograd.grad(case.loss(case.plain()), inputs))
    case.loss(case.in_place()).backward()
    assert case.memory.join[0].weight.grad is None


def test_everything_frozen_but_the_query(engine):
    case = Case(engine)
    case.memory.requires_grad_(False)
    case.x.requires_grad_(False)
    ours = torch.autograd.grad(case.loss(case.in_place()), case.queries)
    same(case, ours, torch.autograd.grad(case.loss(case.plain()), case.queries))


@pytest.mark.parametrize("pick", range(4))
def test_gradients_of_some_inputs_only(engine, pick):
    case = Case(engine)
    search, join = case.memory.search[0].weight, case.memory.join[0].weight
    inputs = [[case.x], [case.queries], [search], [case.x, join]][pick]
    ours = torch.autograd.grad(case.loss(case.in_place()), inputs)
    same(case, ours, torch.autograd.grad(case.loss(case.plain()), inputs))


def test_backward_twice_through_a_retained_graph(engine):
    case = Case(engine)
    loss = case.loss(case.in_place())
    first = torch.autograd.grad(loss, case.inputs, retain_graph=True, materialize_grads=True)
    second = torch.autograd.grad(loss, case.inputs, materialize_grads=True)
    for one, other in zip(first, second, strict=True):
        assert torch.equal(one, other)


def test_a_gradient_from_outside_is_not_changed(engine):
    case = Case(engine)
    *_, tree = case.in_place()
    given = torch.randn_like(tree)
    kept = given.clone()
    ours = torch.autograd.grad(tree, case.inputs, given, materialize_grads=True)
    assert torch.equal(given, kept)
    *_, plain = case.plain()
    same(case, ours, torch.autograd.grad(plain, case.inputs, given, materialize_grads=True))


def test_a_gradient_without_storage_of_its_own(engine):
    case = Case(engine)
    ours = torch.autograd.grad(case.in_place()[-1].sum(), case.inputs, materialize_grads=True)
    same(case, ours, torch.autograd.grad(case.plain()[-1].sum(), case.inputs, materialize_grads=True))


def test_trees_that_are_used_twice(engine):
    """A copy taken half-way, a sum of two memories: every use of a tree has its own gradient."""

    def values(case, start):
        query, leaf = case.queries[0, 0], case.leaf[0, 0]
        once = case.memory.update(start, case.memory.attend(start, query, leaf=leaf), query)
        copy = once.clone()
        looked_at = once.tree[:, 1] * 2
        one = case.memory.update(once, case.memory.attend(once, query, leaf=leaf), query)
        other = case.memory.update(copy, case.memory.attend(copy, -query, leaf=3 - leaf), -query)
        both = State(one.tree + other.tree)
        read = case.memory.attend(both, query, leaf=leaf)
        return [looked_at, read.value, read.log_probs, case.memory.update(both, read, query).tree]

    case = Case(engine)
    ours = values(case, case.memory.init(case.x))
    gradients = torch.autograd.grad(case.loss(ours), case.inputs, materialize_grads=True)

    trees = [Plain(case.memory, case.x[b], LEAVES, LEAVES) for b in range(BATCH)]
    parts = []
    for b, one in enumerate(trees):
        query, leaf = case.queries[0, 0, b], int(case.leaf[0, 0, b])
        one.update(query, leaf)
        looked_at = one.node[1] * 2
        other = Plain.__new__(Plain)
        other.memory, other.leaves, other.node = one.memory, LEAVES, dict(one.node)
        one.update(query, leaf)
        other.update(-query, 3 - leaf)
        both = other
        both.node = {e: one.node[e] + other.node[e] for e in one.node}
        log_probs, _, value = both.attend(query, leaf)
        both.update(query, leaf)
        parts.append((looked_at, value, log_probs, both.tree()))
    plain = [torch.stack(part) for part in zip(*parts, strict=True)]
    same(case, ours, plain)
    same(case, gradients, torch.autograd.grad(case.loss(plain), case.inputs, materialize_grads=True))


@pytest.mark.parametrize("depth", [1, 2])
def test_gradcheck(depth):
    case = Case(depth=depth)
    assert torch.autograd.gradcheck(lambda *_: case.in_place(), case.inputs, fast_mode=True)


def test_accesses_cannot_be_differentiated_twice_in_silence():
    case = Case()
    (gradient,) = torch.autograd.grad(case.loss(case.in_place()), case.queries, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


def test_a_parameter_changed_before_backward_is_noticed():
    case = Case()
    loss = case.loss(case.in_place())
    with torch.no_grad():
        case.memory.search[2].weight.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_any_query_network_learns_through_the_memory(engine):
    """The gradient reaches what made the query, through SEARCH, WRITE and the value."""
    case = Case(engine)
    network = torch.nn.Linear(QUERY, QUERY).to(case.dtype)
    state = case.memory.init(case.x)
    query = network(case.queries[0, 0])
    read = case.memory.attend(state, query)
    state = case.memory.update(state, read, query)
    again = case.memory.attend(state, query, leaf=read.leaf)
    (F.mse_loss(again.value, torch.ones_like(again.value)) - read.log_probs.sum()).backward()
    assert network.weight.grad.any()
