"""Memories that are partly full at first: what they hold, what is asked of them, and that engines agree."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from ham import tasks
from ham.config import Architecture
from ham.core.errors import InputError
from ham.models import Beforehand, Model
from ham.ops import backend, run, set_backend
from ham.ops.episode import Order, Stock
from ham.runs import load
from ham.tasks.online import POP, PUSH
from ham.train.objective import Examples
from ham.train.practice import Conditions, fills_from_the_right

STRUCTURES = ("stack", "queue", "priority_queue")
STOCKED = Conditions(stocked=1.0, tallest=64)


class Filling(Model):
    """A model that begins to fill its memory at the leaf that `first` gives for so many."""

    def __init__(self, first):
        super().__init__()
        self.first = first

    def episode(self, questions):
        raise NotImplementedError

    def forward(self, inputs, lengths, asked, *, leaves):
        return SimpleNamespace(leaves=torch.tensor([[self.first(leaves)]]))


LEFT, RIGHT = Filling(lambda leaves: 0), Filling(lambda leaves: leaves - 1)


@pytest.fixture(autouse=True)
def same_engine_afterwards():
    before = backend()
    yield
    set_backend(before)


def rng(seed=0):
    return np.random.default_rng(seed)


@pytest.mark.parametrize("name", STRUCTURES)
def test_answers_are_those_of_a_structure_that_holds_what_was_pushed_before(name):
    task, generator = tasks.get(name), rng()
    for _ in range(60):
        batch, leaves, told = STOCKED.partly_full(generator, task, 3, 8, LEFT)
        rows, done, ends = told["beforehand"]
        counts = np.diff([0, *ends.tolist()])
        held = [
            item
            for row, steps, count in zip(rows.numpy(), done.tolist(), counts, strict=True)
            if not row[steps - 1, POP]
            for item in task.decode(row[steps - 1 : steps]) * int(count)
        ]
        assert leaves in (8, 16, 32, 64)
        for inputs, length, targets, counted in zip(
            batch.inputs, batch.lengths, batch.targets, batch.counted, strict=True
        ):
            question = task.decode(inputs[:length])
            assert (inputs[length:] == 0).all()
            assert ends[-1] + sum(item != "pop" for item in question) <= leaves
            said = [task.answer_item(row) for row in targets[counted]]
            assert said == task.solve([*held, *question])
            assert (inputs[:, POP].astype(bool) == counted).all()


def test_leaves_of_a_priority_queue_were_used_many_times():
    task, generator = tasks.get("priority_queue"), rng()
    most = set()
    for _ in range(60):
        rows, done, _ = STOCKED.partly_full(generator, task, 1, 8, LEFT)[2]["beforehand"]
        for row, steps in zip(rows.numpy(), done.tolist(), strict=True):
            assert (row[:steps, POP] == np.arange(steps) % 2).all()
            assert (row[:steps].any(1)).all()
            assert not row[steps:].any()
            most.add(steps)
    assert {1, 2, 3, 4, 29, 30} <= most
    assert max(most) <= 30


@pytest.mark.parametrize("name", STRUCTURES)
def test_subtrees_of_every_height_are_full_and_almost_full(name):
    task, generator = tasks.get(name), rng()
    free = []
    for _ in range(600):
        _, leaves, told = STOCKED.partly_full(generator, task, 1, 8, LEFT)
        if leaves == 64:
            free.append(64 - int(told["beforehand"].ends[-1]))
    assert {1, 2, 3, 32} <= set(free)
    assert max(free) > 48


@pytest.mark.parametrize("join", ["rectified", "normalised", "highway"])
@pytest.mark.parametrize("name", STRUCTURES)
@pytest.mark.parametrize("side", [LEFT, RIGHT])
def test_both_engines_build_and_train_the_same_memory(name, join, side):
    task, generator = tasks.get(name), rng(3)
    torch.manual_seed(0)
    model = Architecture("raw-ham", size=5, hidden=6, join=join).build(task)
    for _ in range(6):
        batch, leaves, told = STOCKED.partly_full(generator, task, 3, 4, side)
        examples = Examples.of(batch, task.outputs)
        shape = (3, examples.counted.shape[1], model.decisions(leaves))
        uniforms = torch.from_numpy(generator.random(shape, dtype=np.float32))
        found = {}
        for engine in ("reference", "native"):
            set_backend(engine)
            model.zero_grad()
            episode = model(
                *(examples.inputs, examples.lengths, examples.asked), leaves=leaves, uniforms=uniforms, **told
            )
            (episode.outputs.square().sum() + episode.turn_logits.sin().sum()).backward()
            gradients = [p.grad.clone() for p in model.parameters() if p.grad is not None]
            found[engine] = [episode.outputs.detach(), episode.turn_logits.detach(), *gradients]
        for reference, native in zip(*found.values(), strict=True):
            torch.testing.assert_close(native, reference, rtol=1e-3, atol=1e-4)


def test_a_stocked_memory_is_what_the_operations_leave_behind():
    """One leaf each: writing to them in turn and stocking them give the same tree."""
    task = tasks.get("stack")
    model = Architecture("raw-ham", size=5, hidden=6).build(task)
    rows = torch.from_numpy(task.encode([7, 9]))
    pop = torch.zeros_like(rows[0])
    pop[POP] = 1
    stock = model.stock_after(
        Beforehand(torch.stack([rows, pop.expand_as(rows)], 1), torch.tensor([1, 2]), torch.tensor([1, 3]))
    )
    state = model.memory.stocked(1, 4, stock)
    leaves = state.tree[0, 4:]
    written = model.memory.write(torch.zeros(2, 5), rows)
    popped = model.memory.write(written[1], pop)
    torch.testing.assert_close(leaves, torch.stack([written[0], popped, popped, torch.zeros(5)]))
    assert rows[0, PUSH] == 1


@pytest.mark.parametrize("name", STRUCTURES)
def test_a_model_that_fills_from_the_right_finds_the_same_from_there(name):
    task = tasks.get(name)
    model = Architecture("raw-ham", size=5, hidden=6).build(task)
    for seed in range(30):
        batch, leaves, told = STOCKED.partly_full(rng(seed), task, 2, 8, LEFT)
        same, as_many, other_way = STOCKED.partly_full(rng(seed), task, 2, 8, RIGHT)
        assert (same.inputs == batch.inputs).all()
        assert as_many == leaves
        held, mirrored = (
            model.memory.stocked(1, leaves, model.stock_after(each["beforehand"])).tree[0, leaves:]
            for each in (told, other_way)
        )
        # The elements of a priority queue may lie anywhere.
        torch.testing.assert_close(mirrored, held if name == "priority_queue" else held.flip(0))


@pytest.mark.parametrize(("first", "right"), [(0, False), (7, False), (8, True), (15, True)])
def test_which_end_it_fills_from_is_where_its_first_operation_goes(first, right):
    assert fills_from_the_right(Filling(lambda leaves: first), torch.zeros(7), 16) == right


def test_shipped_models_of_both_kinds_are_asked():
    for name in ("stack", "priority_queue"):
        trained = load(name)
        row = torch.from_numpy(trained.task.encode([trained.task.any_item(rng())]))[0]
        leaf = trained.model(row[None, None], torch.ones(1).long(), torch.ones(1).long(), leaves=64).leaves
        assert fills_from_the_right(trained.model, row, 64) == (int(leaf) >= 32)


def test_a_stock_that_does_not_fit_is_refused():
    task = tasks.get("stack")
    model = Architecture("raw-ham", size=5, hidden=6).build(task)
    inputs, one = torch.zeros(1, 1, 7), torch.ones(1, dtype=torch.int64)
    rows, done = torch.zeros(2, 2, 7), torch.ones(2, dtype=torch.int64)
    for ends in ([1, 5], [3, 2], [-1, 2]):
        for engine in ("reference", "native"):
            set_backend(engine)
            with pytest.raises(InputError, match="ends"):
                model(inputs, one, one, leaves=4, beforehand=Beforehand(rows, done, torch.tensor(ends)))
    soft = Architecture("raw-dham", size=5, hidden=6).build(task)
    with pytest.raises(InputError, match="soft attention over a memory that is partly full"):
        soft(inputs, one, one, leaves=4, beforehand=Beforehand(rows, done, torch.tensor([1, 2])))


def test_a_stock_has_a_value_for_every_end():
    model = Architecture("raw-ham", size=5, hidden=6).build(tasks.get("stack"))
    inputs, one = torch.zeros(1, 1, 7), torch.ones(1, dtype=torch.int64)
    order = Order(inputs, None, one, None, 4, 1, stock=Stock(torch.zeros(3, 5), torch.tensor([1, 2])))
    set_backend("native")
    with pytest.raises(InputError, match="stock"):
        run("episode", model._step_by_step, model.networks(), order, model.engine_options())
