"""Every controller that a run can name: built, checkpointed, loaded, solved with, traced and shown like any other."""

import pytest
import torch

import ham
from ham import recipes, tasks
from ham.cli import main
from ham.config import Architecture, Run, changed
from ham.core.errors import InputError
from ham.models import LSTMHAM, Start
from ham.models.controllers import CONTROLLERS, controller_of
from ham.ops import native
from ham.runs import Trained, load
from ham.runs.checkpoint import save_checkpoint
from ham.use.solve import solve
from ham.use.trace import Trace, portable, trace
from ham.view.page import page

OTHERS = [name for name in CONTROLLERS if name != "lstm"]


@pytest.mark.parametrize("name", CONTROLLERS)
def test_the_contract(name):
    controller, read = controller_of(name, 3, 5), torch.randn(2, 3)
    state = controller.first(read)
    for _ in range(2):
        assert state[0].shape == (2, 5)
        state = controller(read, state)
    assert state[0].abs().max() <= 1, "a query is bounded"


def test_a_gru_by_hand():
    controller, read, h = controller_of("gru", 3, 5), torch.randn(2, 3), torch.randn(2, 5)
    x, s = (
        torch.nn.functional.linear(*given).chunk(3, -1)
        for given in (
            (read, controller.weight_ih, controller.bias_ih),
            (h, controller.weight_hh, controller.bias_hh),
        )
    )
    reset, keep = torch.sigmoid(x[0] + s[0]), torch.sigmoid(x[1] + s[1])
    expected = (1 - keep) * torch.tanh(x[2] + reset * s[2]) + keep * h
    torch.testing.assert_close(controller(read, (h,))[0], expected)


def test_a_feed_forward_controller_forgets():
    controller, read = controller_of("feed-forward", 3, 5), torch.randn(2, 3)
    with_other_past = controller(read, (torch.randn(2, 5),))[0]
    assert torch.equal(with_other_past, controller(read, controller.first(read))[0])


@pytest.mark.parametrize("name", CONTROLLERS)
def test_saved_and_loaded_it_is_the_same(tmp_path, name):
    task, run = tasks.get("sort"), Run("sort", Architecture(controller=name))
    model = run.model.build(task).eval()
    save_checkpoint(tmp_path / "model", run, model.state_dict())
    loaded = load(tmp_path / "model")
    assert loaded.run.model.controller == name
    question = task.parse(task.example)
    before, after = (trace(one, question) for one in (Trained(model, task, run), loaded))
    assert before == after
    assert Trace.from_json(after.to_json()) == after
    assert solve(loaded, task.example) is not None
    assert name in page([portable(loaded)])


def test_a_run_without_one_has_the_papers():
    text = Run("sort").to_json().replace('    "controller": "lstm",\n', "")
    assert "controller" not in text
    assert Run.from_json(text, "a file").model.controller == "lstm"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"controller": "rnn"}, "controller must be one of lstm, gru, feed-forward, got 'rnn'"),
        ({"controller": "gru", "cell_bound": 2.0}, "cell_bound is for the lstm controller, not for gru"),
        ({"controller": "gru", "kind": "raw-ham"}, r"model\.controller is not for raw-ham"),
    ],
)
def test_what_does_not_fit_is_refused(unchecked, given, message):
    with pytest.raises(InputError, match=message):
        Architecture(**given)


@pytest.mark.parametrize("name", OTHERS)
def test_first_states_are_an_lstms(name):
    model = LSTMHAM(3, 2, cells=5, controller=name)
    start = Start(torch.zeros(1, 5), torch.zeros(1, 5))
    with pytest.raises(InputError, match="start is for an LSTM controller"):
        model(torch.rand(1, 2, 3), torch.tensor([2]), torch.tensor([2]), leaves=2, start=start)


@pytest.mark.skipif(not native.available(), reason=native.why_not() or "available")
@pytest.mark.parametrize(("name", "kind"), [("gru", "GRU"), ("feed-forward", "FeedForward")])
def test_the_engine_says_why_not(name, kind):
    ham.set_backend("native")
    model = LSTMHAM(3, 2, cells=5, controller=name)
    with pytest.raises(InputError, match=f"does not serve episode: {kind} is not lstm cell"):
        model(torch.rand(1, 2, 3), torch.tensor([2]), torch.tensor([2]), leaves=2)


def test_the_page_refuses_what_it_does_not_know():
    task, run = tasks.get("sort"), Run("sort", Architecture(controller="gru"))
    model = portable(Trained(run.model.build(task), task, run))
    with pytest.raises(InputError, match="the page does not know the controller elman"):
        page([{**model, "controller": "elman"}])
    with pytest.raises(InputError, match="the page does not know a twisted JOIN"):
        page([{**model, "bounds": {**model["bounds"], "join": "twisted"}}])


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("task", ["reverse", "sort", "merge"])
def test_a_recipe_for_an_lstm_is_one_for_another_controller_too(name, task):
    run = changed(recipes.get(task), {"model.controller": name})
    assert (run.model.controller, run.model.cell_bound, run.main.anywhere, run.end.anywhere) == (
        name,
        0,
        0,
        0,
    )
    assert changed(recipes.get(task), {"model.controller": "lstm"}) == recipes.get(task)
    with pytest.raises(InputError, match=f"cell_bound is for the lstm controller, not for {name}"):
        changed(run, {"model.controller": name, "model.cell_bound": 2.0})


def test_from_the_command_line(tmp_path, capsys):
    small = "--model.cells 4 --model.size 4 --model.hidden 4 --data.batch 4 --data.runs 2 --data.batches 2"
    small += " --data.validation 4 --data.leaves 4 --schedule.epochs 1 --schedule.finish 0"
    folder = str(tmp_path / "run")
    assert main(["train", "sort", "--model.controller", "gru", "--out", folder, *small.split()]) == 0
    assert main(["evaluate", folder, "--examples", "4"]) == 0
    main(["solve", "--model", folder, "sort", "7:1 3:9"])
    assert load(folder).run.model.controller == "gru"
