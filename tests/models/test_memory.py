"""The memory by itself: values worked out by hand, one path a write, every way to choose a leaf."""

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import ham
from ham.core.errors import InputError
from ham.core.tree import path_to
from ham.models import HAM, forced


@pytest.fixture
def by_hand():
    """Width 1 and depth 1, so that every transformation is one line of arithmetic."""
    memory = HAM(1, 1, 1, depth=1)
    weights = {
        "embed.0": ([[2.0]], 1.0),  # EMBED(x) = ReLU(2x + 1)
        "join.0": ([[1.0, -0.5]], 1.0),  # JOIN(l, r) = ReLU(l − r/2 + 1)
        "search.0": ([[2.0, -1.0]], -2.5),  # SEARCH(h, q) = σ(2h − q − 2.5)
        "write.candidate.0": ([[1.0, 2.0]], -1.0),  # H(h, q) = σ(h + 2q − 1)
        "write.gate.0": ([[0.0, 0.0]], math.log(3)),  # T(h, q) = σ(ln 3) = 3/4
    }
    for name, (weight, bias) in weights.items():
        layer = memory.get_submodule(name)
        layer.weight.data = torch.tensor(weight)
        layer.bias.data = torch.tensor([bias])
    return memory


def test_init_attend_write_and_join_by_hand(engine, by_hand):
    # Leaves: ReLU(2·1 + 1) = 3, ReLU(2·2 + 1) = 5, ReLU(2·0.5 + 1) = 2, and 0: the fourth item is
    # beyond the length of 3. Inner nodes: h2 = 3 − 2.5 + 1 = 1.5, h3 = 2 − 0 + 1 = 3,
    # h1 = 1.5 − 1.5 + 1 = 1.
    x = torch.tensor([[[1.0], [2.0], [0.5], [4.0]]])
    state = by_hand.init(x, torch.tensor([3]))
    assert state.leaves == 4
    assert state.tree[0, 1:, 0].tolist() == [1, 1.5, 3, 3, 5, 2, 0]

    # With q = 1/4 the logits are 2·1 − 0.25 − 2.5 = −0.75 at the root (left) and
    # 2·1.5 − 0.25 − 2.5 = 0.25 at node 2 (right): leaf 1.
    read = by_hand.attend(state, torch.tensor([[0.25]]), greedy=True)
    assert read.leaf.tolist() == [1]
    assert read.value.tolist() == [[5]]
    assert read.turns.tolist() == [[False, True]]
    assert read.turn_logits.tolist() == [[-0.75, 0.25]]
    # p(right) is 0.3208213 at the root and 0.5621765 at node 2.
    # log(1 − 0.3208213) = −0.3868710 and log 0.5621765 = −0.5759394;
    # −0.3208213·log 0.3208213 − 0.6791787·log 0.6791787 = 0.6274870, and 0.6853937 in the same way.
    torch.testing.assert_close(read.log_probs, torch.tensor([[-0.3868710, -0.5759394]]))
    torch.testing.assert_close(read.entropies, torch.tensor([[0.6274870, 0.6853937]]))

    # With q = −2: H = σ(5 − 4 − 1) = 1/2, so leaf 1 becomes 3/4·1/2 + 1/4·5 = 1.625;
    # then h2 = 3 − 0.8125 + 1 = 3.1875 and h1 = 3.1875 − 1.5 + 1 = 2.6875.
    state = by_hand.update(state, read, torch.tensor([[-2.0]]))
    torch.testing.assert_close(state.tree[0, 1:, 0], torch.tensor([2.6875, 3.1875, 3, 3, 1.625, 2, 0]))


def test_an_empty_memory_by_hand(engine, by_hand):
    # JOIN(0, 0) = 1, then JOIN(1, 1) = 1.5, then JOIN(1.5, 1.5) = 1.75.
    state = by_hand.empty(2, 8)
    assert state.tree[:, 1:, 0].tolist() == [[1.75, 1.5, 1.5, 1, 1, 1, 1, *[0] * 8]] * 2


@pytest.mark.parametrize(("uniform", "leaf"), [(0.32, 2), (0.33, 0)])
def test_right_is_taken_iff_the_uniform_is_below_its_probability(engine, by_hand, uniform, leaf):
    # p(right) = 0.3208 at the root; the second uniform of 1 never goes right.
    state = by_hand.init(torch.tensor([[[1.0], [2.0], [0.5]]]))
    read = by_hand.attend(state, torch.tensor([[0.25]]), uniforms=torch.tensor([[uniform, 1.0]]))
    assert read.leaf.tolist() == [leaf]


def lively(features=3, query=2, size=4, *, depth=2):
    """A memory whose JOIN is never stuck at zero, so that every change below shows above."""
    memory = HAM(features, query, size, hidden=5, depth=depth)
    for parameter in memory.join.parameters():
        parameter.data.abs_().add_(0.01)
    return memory


@given(st.integers(0, 4), st.integers(1, 2), st.integers(0, 10**6))
@settings(max_examples=25)
def test_a_write_changes_one_path_and_no_other_node(engine, depth, layers, seed):
    torch.manual_seed(seed)
    leaves, batch = 1 << depth, 3
    memory = lively(depth=layers)
    state = memory.init(torch.rand(batch, leaves, 3))
    query = torch.randn(batch, 2)
    before = state.tree.detach().clone()
    read = memory.attend(state, query)
    assert torch.equal(state.tree, before), "a read changed the tree"
    after = memory.update(state, read, query).tree
    changed = (after != before).any(-1)
    on_path = torch.zeros(batch, 2 * leaves, dtype=torch.bool).scatter_(1, path_to(read.leaf, leaves), True)
    assert torch.equal(changed, on_path)


@given(st.integers(0, 4), st.lists(st.integers(0, 10**6), min_size=1, max_size=8))
@settings(max_examples=25)
def test_every_inner_node_stays_the_join_of_its_children(engine, depth, seeds):
    leaves, batch = 1 << depth, 2
    memory = lively()
    state = memory.init(torch.rand(batch, leaves, 3), torch.tensor([leaves, max(leaves - 1, 1)]))
    for seed in seeds:
        random = torch.Generator().manual_seed(seed)
        query = torch.randn(batch, 2, generator=random)
        leaf = torch.randint(leaves, (batch,), generator=random)
        active = torch.rand(batch, generator=random) < 0.7
        state = memory.update(state, memory.attend(state, query, leaf=leaf), query, active=active)
    tree = state.tree
    for node in range(1, leaves):
        joined = memory.join(torch.cat([tree[:, 2 * node], tree[:, 2 * node + 1]], -1))
        torch.testing.assert_close(tree[:, node], joined)
    assert not tree[:, 0].any()


def test_examples_that_are_not_active_keep_their_tree_bit_for_bit(engine):
    memory = lively()
    state = memory.init(torch.rand(4, 8, 3))
    before = state.tree.detach().clone()
    query = torch.randn(4, 2)
    active = torch.tensor([True, False, False, True])
    after = memory.update(state, memory.attend(state, query), query, active=active).tree
    assert torch.equal(after[~active], before[~active])
    assert (after[active] != before[active]).flatten(1).any(1).all()


def test_nobody_active_changes_nothing(engine):
    memory = lively()
    state = memory.init(torch.rand(2, 4, 3))
    before = state.tree.detach().clone()
    query = torch.randn(2, 2, requires_grad=True)
    read = memory.attend(state, query)
    state = memory.update(state, read, query, active=torch.zeros(2, dtype=torch.bool))
    assert torch.equal(state.tree, before)
    (state.tree.sum() + read.value.sum()).backward()


def test_a_memory_of_one_leaf(engine):
    memory = HAM(3, 2, 4)
    x, query = torch.rand(2, 1, 3), torch.randn(2, 2, requires_grad=True)
    state = memory.init(x)
    assert state.leaves == 1
    read = memory.attend(state, query)
    assert read.leaf.tolist() == [0, 0]
    assert read.log_probs.shape == read.entropies.shape == (2, 0)
    torch.testing.assert_close(read.value, memory.embed(x)[:, 0])
    after = memory.update(state, read, query)
    torch.testing.assert_close(after.tree[:, 1], memory.write(memory.embed(x)[:, 0], query))
    (read.value.sum() + after.tree.square().sum()).backward()
    assert memory.embed[0].weight.grad.any()
    assert query.grad.any()


def test_the_same_parameters_serve_every_size(engine):
    memory = HAM(3, 2, 4)
    query = torch.randn(1, 2)
    parameters = sum(p.numel() for p in memory.parameters())
    for leaves in (1, 2, 16, 1024):
        state = memory.init(torch.rand(1, leaves, 3))
        read = memory.attend(state, query)
        assert read.turns.shape == (1, leaves.bit_length() - 1)
        assert memory.update(state, read, query).leaves == leaves
    assert parameters == sum(p.numel() for p in memory.parameters())


def test_excess_leaves_hold_zeros_whatever_the_padding_holds(engine):
    memory = HAM(3, 2, 4)
    for layer in (memory.embed[0], memory.embed[2]):
        layer.bias.data.fill_(1)
    x, lengths = torch.rand(2, 5, 3), torch.tensor([5, 2])
    state = memory.init(x, lengths)
    assert state.leaves == 8
    assert not state.tree[0, 8 + 5 :].any()
    assert not state.tree[1, 8 + 2 :].any()
    assert state.tree[1, 8 : 8 + 2].any()
    padded = x.clone()
    padded[1, 2:] = 100
    assert torch.equal(memory.init(padded, lengths).tree, state.tree)
    assert memory.init(x, lengths, leaves=32).leaves == 32


def test_items_that_do_not_fit_are_refused():
    with pytest.raises(InputError, match="9 items do not fit into a memory of 8 leaves"):
        HAM(3, 2).init(torch.rand(1, 9, 3), leaves=8)
    with pytest.raises(InputError, match="power of two, got 12"):
        HAM(3, 2).init(torch.rand(1, 9, 3), leaves=12)


@pytest.mark.parametrize("lengths", [torch.tensor([1.5, 2.0]), torch.tensor([True, False])])
def test_lengths_are_whole_numbers(unchecked, lengths):
    with pytest.raises(InputError, match=f"lengths must be whole numbers, .* got {lengths.dtype}"):
        HAM(3, 2).init(torch.rand(2, 4, 3), lengths)


def test_an_empty_batch_is_read_and_written(engine):
    ham.set_backend("auto" if engine == "native" else engine)
    memory = HAM(3, 2, 4)
    for examples in (0, 2, 0):  # also after the engine has come to know the memory
        state = memory.init(torch.rand(examples, 4, 3))
        query = torch.randn(examples, 2)
        read = memory.attend(state, query)
        assert read.value.shape == (examples, 4)
        assert memory.update(state, read, query).tree.shape == (examples, 8, 4)


def test_one_leaf_is_not_stretched_over_a_batch(engine, unchecked):
    memory = HAM(3, 2, 4)
    state, query = memory.init(torch.rand(2, 4, 3)), torch.randn(2, 2)
    with pytest.raises(InputError, match=r"leaf must have shape \(2,\), got \(1,\)"):
        memory.attend(state, query, leaf=torch.tensor([1]))
    read = memory.attend(state, query)
    with pytest.raises(InputError, match=r"leaf must have shape [\[(]2,?[\])], got [\[(]1,?[\])]"):
        memory.update(state, replace(read, leaf=torch.tensor([1])), query)


def test_a_state_is_spent_once_updated(engine):
    memory = HAM(3, 2, 4)
    query = torch.randn(1, 2)
    old = memory.init(torch.rand(1, 4, 3))
    kept = old.clone()
    read = memory.attend(old, query)
    memory.update(old, read, query)
    for again in (lambda: memory.attend(old, query), lambda: memory.update(old, read, query), old.clone):
        with pytest.raises(InputError, match="already updated"):
            again()
    assert torch.equal(memory.attend(kept, query, leaf=read.leaf).value, read.value)


def test_forced_leaves_are_reached_whatever_the_probabilities_are(engine):
    memory = HAM(3, 2, 4)
    for bias in (-1e4, 0.0, 1e4):
        memory.search[-1].bias.data.fill_(bias)
        state = memory.init(torch.rand(8, 8, 3))
        read = memory.attend(state, torch.randn(8, 2), leaf=torch.arange(8))
        assert read.leaf.tolist() == list(range(8))
        torch.testing.assert_close(read.value, state.tree[torch.arange(8), torch.arange(8, 16)])
        assert torch.isfinite(read.log_probs).all()
        assert torch.isfinite(read.entropies).all()


@pytest.mark.parametrize("leaf", [-1, 4])
def test_a_leaf_outside_the_memory_cannot_be_forced(leaf):
    with pytest.raises(InputError, match="between 0 and 3"):
        forced(torch.tensor([leaf]), 4)


def test_greedy_goes_right_iff_p_is_above_one_half(engine):
    memory = HAM(3, 2, 4).eval()
    state = memory.init(torch.rand(50, 16, 3))
    read = memory.attend(state, torch.randn(50, 2))
    assert torch.equal(read.turns, read.turn_logits > 0)
    assert 0 < read.turns.float().mean() < 1
    for parameter in memory.search.parameters():
        parameter.data.zero_()
    # p = 1/2 exactly is not above one half.
    assert not memory.attend(memory.init(torch.rand(1, 16, 3)), torch.zeros(1, 2)).turns.any()


def test_sampled_frequencies_are_the_probabilities(engine):
    memory = HAM(3, 2, 4)
    examples = 20_000
    state = memory.init(torch.rand(1, 4, 3).expand(examples, -1, -1))
    query = torch.randn(1, 2).expand(examples, -1)
    read = memory.attend(state, query)
    for leaf in range(4):
        p = memory.attend(state, query, leaf=torch.full((examples,), leaf)).log_probs[0].sum().exp().item()
        seen = (read.leaf == leaf).float().mean().item()
        assert abs(seen - p) < 4 * math.sqrt(p * (1 - p) / examples)


def test_training_samples_and_evaluation_does_not(engine):
    memory = HAM(3, 2, 4)
    state = memory.init(torch.rand(1, 16, 3).expand(200, -1, -1))
    query = torch.zeros(200, 2)
    assert len(memory.train().attend(state, query).leaf.unique()) > 1
    assert len(memory.eval().attend(state, query).leaf.unique()) == 1
    assert len(memory.train().attend(state, query, greedy=True).leaf.unique()) == 1


def test_a_leaf_and_uniforms_are_one_too_many(engine):
    memory = HAM(3, 5, 4)
    state = memory.init(torch.rand(2, 4, 3))
    with pytest.raises(InputError, match="not both"):
        memory.attend(state, torch.rand(2, 5), leaf=torch.tensor([0, 3]), uniforms=torch.rand(2, 2))


def test_leaves_of_a_narrow_type_are_reached(engine):
    memory = HAM(3, 5, 4)
    leaf = torch.tensor([1, 100], dtype=torch.int8)
    read = memory.attend(memory.empty(2, 256), torch.rand(2, 5), leaf=leaf)
    assert read.leaf.tolist() == [1, 100]


def test_a_spent_state_replaces_nothing(engine):
    memory = HAM(3, 5, 4)
    spent, state = memory.empty(2, 4), memory.empty(2, 4)
    memory.update(spent, memory.attend(spent, torch.rand(2, 5)), torch.rand(2, 5))
    with pytest.raises(InputError, match="already updated"):
        state.replaced(torch.tensor([True, False]), spent)


def test_values_and_queries_of_other_widths_are_refused_by_a_memory_that_was_used(engine):
    """One wider by as much as the other is narrower: SEARCH would take the two together."""
    memory, wider = HAM(3, 5, 4), HAM(3, 4, 5)
    state = memory.empty(2, 4)
    read = memory.attend(state, torch.rand(2, 5))
    memory.update(state, read, torch.rand(2, 5))
    for access in (memory.attend, lambda *given: memory.update(given[0], read, given[1])):
        with pytest.raises(InputError, match="the query must have shape"):
            access(wider.empty(2, 4), torch.rand(2, 4))


@pytest.mark.parametrize("join", ["rectified", "highway"])
def test_networks_are_known_by_their_names_and_not_by_when_they_came(engine, join):
    torch.manual_seed(0)
    memory = HAM(3, 5, 4, join=join)
    query, leaf = torch.rand(2, 5), torch.tensor([1, 2])

    def accessed():
        state = memory.init(torch.ones(2, 4, 3))
        read = memory.attend(state, query, leaf=leaf)
        return read.turn_logits, memory.update(state, read, query).tree

    before = accessed()
    for module in (memory.write, *([memory.join] if join == "highway" else [])):
        for name in ("gate", "candidate"):
            part = getattr(module, name)
            delattr(module, name)
            setattr(module, name, part)
    weight = memory.search[0].weight
    del memory.search[0].weight
    memory.search[0].weight = weight
    for one, other in zip(accessed(), before, strict=True):
        assert torch.equal(one, other)
