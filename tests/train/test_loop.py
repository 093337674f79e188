"""Training can stop anywhere and go on to the same bits, and a bad batch cannot spoil a run."""

import dataclasses
import json

import pytest
import torch

from ham.config import Architecture, changed
from ham.core.errors import InputError
from ham.models import LSTMHAM
from ham.runs import CHECKPOINT, STATE, RunFolder, load
from ham.train import loop
from ham.train.adam import Adam
from ham.train.curriculum import Curriculum
from ham.train.evaluate import Score, evaluate
from ham.train.flat import FlatParameters
from ham.train.gradient import Gradient
from ham.train.loop import Diverged, Epoch, Step, train
from settings import run_with

SETTINGS = dict(
    batch=8,
    runs=2,
    baseline="leave-one-out",
    epochs=3,
    batches=5,
    validation=20,
    start=2,
    leaves=4,
    threshold=1.0,
    mix=0.5,
    finish=1,
)
RUN = run_with("reverse", Architecture(cells=4, size=4, hidden=4), seed=5, **SETTINGS)


def begin(path, run=RUN):
    folder = RunFolder(path)
    folder.begin(run)
    return folder


def result(folder):
    """All that a run leaves, but for the time it took."""
    records = [{**record, "seconds": 0} for record in folder.metrics()]
    tensors, progress = folder.read_state()
    state = {name: tensor.tolist() for name, tensor in tensors.items()}
    return (folder.path / CHECKPOINT).read_bytes(), records, state, {**progress, "seconds": 0}


@pytest.fixture
def every_batch(monkeypatch):
    """A report, and so a chance to stop, after every batch."""
    monkeypatch.setattr(loop, "BATCHES_BETWEEN_REPORTS", 1)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    import ham

    ham.set_backend("reference")
    folder = begin(tmp_path_factory.mktemp("whole") / "run")
    epochs = [epoch for epoch in train(RUN, folder) if isinstance(epoch, Epoch)]
    assert [epoch.epoch for epoch in epochs] == [1, 2, 3]
    assert [epoch.phase for epoch in epochs] == ["main", "main", "finish"]
    assert {epoch.longest for epoch in epochs} >= {2}
    return result(folder)


@pytest.mark.parametrize("stops", [[1], [2, 3, 1], [5], [6, 8]])
def test_stopped_and_resumed_comes_to_the_same_bits(tmp_path, every_batch, uninterrupted, stops):
    folder = begin(tmp_path / "run")
    for stop in stops:
        training = train(RUN, folder)
        for _ in range(stop):
            next(training)
        training.close()
        assert folder.read_state() is not None
    for _ in train(RUN, folder):
        pass
    assert result(folder) == uninterrupted


def test_saving_all_the_time_changes_nothing(tmp_path, uninterrupted, monkeypatch):
    monkeypatch.setattr(loop, "SECONDS_BETWEEN_STATES", -1.0)
    folder = begin(tmp_path / "run")
    assert not any(isinstance(step, Step) for step in train(RUN, folder)), "reports are every 20 batches"
    assert result(folder) == uninterrupted


def test_a_finished_run_stays_finished(tmp_path):
    folder = begin(tmp_path / "run")
    assert list(train(RUN, folder))
    before = result(folder)
    assert list(train(RUN, folder)) == []
    assert result(folder) == before


@pytest.mark.parametrize("restart", [False, True])
def test_where_asked_for_a_tree_that_grew_begins_again(tmp_path, every_batch, monkeypatch, restart):
    grow = Curriculum.after
    monkeypatch.setattr(Curriculum, "after", lambda self, error: grow(self, error=0.0))
    run = changed(RUN, {"schedule.epochs": 6, "schedule.restart": restart, "data.leaves": 16})
    folder = begin(tmp_path / "run", run)
    epochs = [epoch for epoch in train(run, folder) if isinstance(epoch, Epoch)]
    assert [epoch.longest for epoch in epochs] == [2, 4, 8, 16, 16, 16]
    since = [0, 0, 0, 0, 1] if restart else [0, 1, 2, 3, 4]
    rates = [run.main.learning_rate * run.main.learning_rate_decay**age for age in since]
    assert [epoch.learning_rate for epoch in epochs] == pytest.approx([*rates, run.end.learning_rate])

    assert result(in_sittings(run, tmp_path / "again")) == result(folder)


def in_sittings(run, path):
    """The same run, stopped after every third report."""
    folder = begin(path, run)
    while folder.read_state() is None or folder.read_state()[1]["phase"] != "done":
        training = train(run, folder)
        for _ in zip(range(3), training, strict=False):
            pass
        training.close()
    return folder


@pytest.mark.parametrize("mastered", [5, 100])
def test_a_run_that_fails_its_trial_begins_anew_until_it_passes(tmp_path, every_batch, monkeypatch, mastered):
    grow, states = Curriculum.after, []
    epoch_of = loop._advance

    def advance(state, error):
        passed = state.progress.epoch + 1 >= mastered
        monkeypatch.setattr(Curriculum, "after", lambda self, error: grow(self, error=0.0 if passed else 1.0))
        before = state.average.clone()
        epoch_of(state, error)
        states.append(
            (state.progress.phase_began, torch.equal(before, state.average), state.progress.averaged_steps)
        )

    monkeypatch.setattr(loop, "_advance", advance)
    run = changed(RUN, {"schedule.epochs": 7, "schedule.trial": 2, "schedule.finish": 1, "data.leaves": 8})
    folder = begin(tmp_path / "run", run)
    epochs = [epoch for epoch in train(run, folder) if isinstance(epoch, Epoch)]
    anew = [2, 4]
    began = [began for began, _, _ in states]
    assert sorted(set(began) - {0, 6}) == anew
    for (_, kept, steps), epoch in zip(states, epochs, strict=True):
        assert kept != (epoch.epoch in anew)
        assert (steps == 0) == (epoch.epoch in anew)
    assert [epoch.longest for epoch in epochs] == ([2, 2, 2, 2, 2, 4, 8] if mastered == 5 else [2] * 7)
    assert len({epoch.loss for epoch in epochs}) == 7
    assert result(in_sittings(run, tmp_path / "again")) == result(folder)


def test_a_run_that_fails_its_trial_on_a_later_stage_begins_anew_from_the_first(tmp_path, monkeypatch):
    grow = Curriculum.after
    monkeypatch.setattr(Curriculum, "after", lambda self, error: grow(self, error=float(self.stage > 0)))
    run = changed(RUN, {"schedule.epochs": 7, "schedule.trial": 2, "data.leaves": 8})
    epochs = [epoch for epoch in train(run, begin(tmp_path / "run", run)) if isinstance(epoch, Epoch)]
    assert [epoch.longest for epoch in epochs] == [2, 4, 4, 4, 2, 4, 4]


def test_an_opening_phase_masters_short_inputs_by_its_own_pace(tmp_path, every_batch, monkeypatch):
    grow = Curriculum.after
    monkeypatch.setattr(Curriculum, "after", lambda self, error: grow(self, error=0.0))
    run = changed(
        RUN,
        {
            "schedule.epochs": 7,
            "schedule.opening": 4,
            "data.leaves": 16,
            "opening.learning_rate": 0.01,
            "opening.exploration_term": "negative",
        },
    )
    folder = begin(tmp_path / "run", run)
    asked, of = [], Gradient.of

    def noting(self, *arguments, **named):
        asked.append((named["leaves"], named["entropy"]))
        return of(self, *arguments, **named)

    monkeypatch.setattr(Gradient, "of", noting)
    epochs = [epoch for epoch in train(run, folder) if isinstance(epoch, Epoch)]
    assert [epoch.phase for epoch in epochs] == [*["opening"] * 2, *["main"] * 4, "finish"]
    assert [epoch.longest for epoch in epochs] == [2, 4, 4, 8, 16, 16, 16]
    assert [epoch.learning_rate for epoch in epochs][:3] == [0.01, 0.01 * 0.96, run.main.learning_rate]
    assert {entropy for _, entropy in asked[:10]} == {"negative"}
    assert {entropy for _, entropy in asked[10:]} == {"inverse"}
    assert result(in_sittings(run, tmp_path / "again")) == result(folder)


def test_an_opening_that_is_not_mastered_lasts_until_the_end_phase(tmp_path):
    run = changed(RUN, {"schedule.opening": 2, "data.threshold": 0.0})
    epochs = [epoch for epoch in train(run, begin(tmp_path / "run", run)) if isinstance(epoch, Epoch)]
    assert [(epoch.phase, epoch.longest) for epoch in epochs] == [
        ("opening", 2),
        ("opening", 2),
        ("finish", 2),
    ]


def test_with_small_growth_several_stages_share_a_tree(tmp_path, every_batch, monkeypatch):
    grow, evaluate, validated = Curriculum.after, loop.evaluate, []
    monkeypatch.setattr(Curriculum, "after", lambda self, error: grow(self, error=0.0))

    def noting(*arguments, **named):
        validated.append((named["leaves"], named["lengths"]))
        return evaluate(*arguments, **named)

    monkeypatch.setattr(loop, "evaluate", noting)
    run = run_with(
        "reverse",
        RUN.model,
        seed=5,
        **{**SETTINGS, **dict(start=4, leaves=8, growth=1.25, epochs=5, finish=0, mix=0.0)},
    )
    steps = list(train(run, begin(tmp_path / "run", run)))
    assert [epoch.longest for epoch in steps if isinstance(epoch, Epoch)] == [4, 5, 6, 7, 8]
    trained = {(step.epoch, step.longest) for step in steps if isinstance(step, Step)}
    assert trained == {(0, 4), (1, 5), (2, 6), (3, 7), (4, 8)}
    assert validated == [(4, (1, 4)), (8, (1, 5)), (8, (1, 6)), (8, (1, 7)), (8, (1, 8))]


class Interrupting:
    """Calls a function, and plays Ctrl-C before or after its n-th call."""

    def __init__(self, function, call, after):
        self.function, self.left, self.after = function, call, after

    def __call__(self, *arguments, **named):
        self.left -= 1
        if self.left == 0 and not self.after:
            raise KeyboardInterrupt
        given = self.function(*arguments, **named)
        if self.left == 0:
            raise KeyboardInterrupt
        return given


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(
    ("owner", "name", "call"),
    [
        (Gradient, "of", 1),
        (Gradient, "of", 9),
        (loop, "evaluate", 2),
        (Adam, "step", 1),
        (Adam, "step", 9),
        (Adam, "restart", 1),
        (FlatParameters, "load", 2),
        (RunFolder, "write_checkpoint", 1),
        (RunFolder, "write_metrics", 2),
        (RunFolder, "write_state", 2),
    ],
)
def test_ctrl_c_anywhere_comes_to_the_same_bits(
    tmp_path, uninterrupted, monkeypatch, owner, name, call, after
):
    """Even between the weights' step and the count of it, where the state in memory is torn."""
    folder = begin(tmp_path / "run")
    interrupting = Interrupting(getattr(owner, name), call, after)
    wrapper = interrupting if owner is loop else lambda *a, **k: interrupting(*a, **k)
    with monkeypatch.context() as patched:
        patched.setattr(owner, name, wrapper)
        with pytest.raises(KeyboardInterrupt):
            for _ in train(RUN, folder):
                pass
    assert interrupting.left <= 0
    for _ in train(RUN, folder):
        pass
    assert result(folder) == uninterrupted


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_loss_that_is_no_number_stops_with_its_seed_and_the_state_before(
    tmp_path, every_batch, monkeypatch, bad
):
    good = begin(tmp_path / "good")
    training = train(RUN, good)
    for _ in range(3):
        next(training)
    training.close()

    folder = begin(tmp_path / "bad")
    real, calls = Gradient.of, iter(range(100))

    def spoilt(*arguments, **named):
        cost = real(*arguments, **named)
        spoilt_parts = {part: value * bad for part, value in cost.parts.items()}
        return dataclasses.replace(cost, parts=spoilt_parts) if next(calls) == 3 else cost

    with monkeypatch.context() as patched:
        patched.setattr(Gradient, "of", spoilt)
        with pytest.raises(Diverged, match=r"at batch 3 \(data seed \[0, 5, 3\], \d leaves\)") as raised:
            list(train(RUN, folder))
    assert str(folder.path) in str(raised.value)
    (expected, where), (found, stopped) = good.read_state(), folder.read_state()
    assert {**stopped, "seconds": 0} == {**where, "seconds": 0}
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor)


def test_a_weight_that_became_infinite_is_not_saved_over_the_last_good_state(
    tmp_path, every_batch, monkeypatch
):
    built = []
    real = Architecture.build
    monkeypatch.setattr(Architecture, "build", lambda self, task: built.append(real(self, task)) or built[-1])
    folder = begin(tmp_path / "run")
    training = train(RUN, folder)
    for _ in range(6):
        report = next(training)
    assert isinstance(report, Epoch)
    before = (folder.path / STATE).read_bytes()
    next(training)
    # An infinite bias makes an infinite loss, though not an infinite gradient.
    built[0].output.bias.data[0] = torch.inf
    with pytest.raises(Diverged, match="not finite at batch 6"):
        list(training)
    assert (folder.path / STATE).read_bytes() == before


def test_a_state_of_another_model_is_refused_in_one_line(tmp_path):
    folder = begin(tmp_path / "run")
    list(train(RUN, folder))
    wider = dataclasses.replace(RUN, model=Architecture(cells=5, size=4, hidden=4))
    with pytest.raises(InputError, match="is not of the run in its config") as raised:
        list(train(wider, folder))
    assert "\n" not in str(raised.value)


def test_a_state_with_strange_progress_is_refused_in_one_line(tmp_path):
    folder = begin(tmp_path / "run")
    list(train(RUN, folder))
    tensors, progress = folder.read_state()
    folder.write_state(folder.run(), tensors, {**progress, "mood": "good"})
    with pytest.raises(InputError, match=r"is not of the run in its config.*mood"):
        list(train(RUN, folder))


@pytest.mark.parametrize(("start", "leaves"), [(1, 1), (1, 2)])
def test_a_task_that_needs_more_leaves_says_so(tmp_path, start, leaves):
    run = run_with("add", RUN.model, **{**SETTINGS, "start": start, "leaves": leaves})
    with pytest.raises(InputError, match=f"needs at least 4 leaves, got {leaves}"):
        list(train(run, begin(tmp_path / "run", run)))


@pytest.mark.parametrize(
    ("task", "kind"),
    [
        ("reverse", "lstm+ham"),
        ("search", "lstm+ham"),
        ("sort", "dham"),
        ("stack", "raw-ham"),
        ("queue", "raw-dham"),
        ("merge", "lstm"),
        ("sort", "lstm+a"),
        ("priority_queue", "lstm"),
        ("stack", "lstm+a"),
    ],
)
def test_every_model_trains_and_loads(engine, tmp_path, task, kind):
    model = Architecture(kind=kind, cells=4, size=4, hidden=4)
    small = {**SETTINGS, "start": 1, "epochs": 3, "batches": 2, "finish": 1}
    folder = begin(tmp_path / "run", run_with(task, model, **small))
    epochs = [epoch for epoch in train(folder.run(), folder) if isinstance(epoch, Epoch)]
    assert len(epochs) == 3
    assert json.loads(json.dumps(folder.metrics())) == [dataclasses.asdict(epoch) for epoch in epochs]
    trained = load(folder.path)
    assert trained.run == folder.run()
    assert not trained.model.training


def test_the_checkpoint_holds_the_best_average_not_the_last_weights(tmp_path):
    folder = begin(tmp_path / "run")
    list(train(RUN, folder))
    tensors, _ = folder.read_state()
    weights = torch.cat([p.detach().flatten() for p in load(folder.path).model.parameters()])
    assert torch.equal(weights, tensors["best"])
    assert not torch.equal(weights, tensors["weights"])


def test_epochs_of_the_end_phase_are_compared_on_the_same_examples(tmp_path, monkeypatch):
    seen = []

    def spy(*given, rng, **rest):
        seen.append(rng.bit_generator.state["state"]["state"])
        return evaluate(*given, rng=rng, **rest)

    monkeypatch.setattr(loop, "evaluate", spy)
    run = changed(RUN, {"schedule.epochs": 5, "schedule.finish": 3, "end.hard": 0.5})
    for _ in train(run, RunFolder(tmp_path)):
        pass
    assert len(seen) == 2 + 2 * 3, "the paper's questions, and in the end phase also what is practised"
    assert len(set(seen[:3])) == 3
    assert seen[2] == seen[4] == seen[6]
    assert seen[3] == seen[5] == seen[7]


def test_another_seed_is_another_run(tmp_path):
    losses = set()
    for seed in (0, 1):
        run = dataclasses.replace(RUN, seed=seed)
        losses.add(
            next(e.train_loss for e in train(run, begin(tmp_path / str(seed), run)) if isinstance(e, Epoch))
        )
    assert len(losses) == 2


def test_adam_is_torchs():
    torch.manual_seed(0)
    weights = torch.randn(50)
    theirs = torch.nn.Parameter(weights.clone())
    adam, optimiser = Adam(weights), torch.optim.Adam([theirs], lr=0.01)
    for t in range(30):
        gradient = torch.randn(50)
        optimiser.param_groups[0]["lr"] = rate = 0.01 * 0.9**t
        theirs.grad = gradient
        optimiser.step()
        adam.step(gradient, rate)
    torch.testing.assert_close(weights, theirs.detach())


def test_flat_parameters_are_the_models_own():
    model = LSTMHAM(3, 2, cells=4, size=4, hidden=4)
    before = [p.detach().clone() for p in model.parameters()]
    flat = FlatParameters(model)
    assert all(torch.equal(p, old) for p, old in zip(model.parameters(), before, strict=True))
    sum(p.sum() for p in model.parameters()).backward()
    assert (flat.gradient == 1).all()
    with flat.borrowed(torch.zeros_like(flat.weights)):
        assert not any(p.any() for p in model.parameters())
    assert all(torch.equal(p, old) for p, old in zip(model.parameters(), before, strict=True))


@pytest.mark.parametrize(
    ("practice", "scores", "kept"),
    [
        # Of an end phase that practises more, one wrong example of a thousand more does not count, two do.
        ({"end.tall": 0.5}, [(5, 0.9), (1, 0.5), (0, 0.4), (1, 0.3), (2, 0.1), (1, 0.35)], 4),
        ({"end.tall": 0.5}, [(3, 0.1), (0, 0.5), (0, 0.6)], 2),
        ({}, [(5, 0.9), (1, 0.5), (0, 0.4), (1, 0.3)], 3),
    ],
)
def test_one_wrong_example_is_luck_in_an_end_phase(tmp_path, monkeypatch, practice, scores, kept):
    asked = iter([(0, 9.0), *scores])  # that of the main phase, whose examples are others, comes first

    def validated(state):
        wrong, loss = next(asked)
        score = Score(1000, wrong, 1000, wrong, loss)
        return score, score

    monkeypatch.setattr(loop, "_validate", validated)
    short = {"schedule.epochs": 1 + len(scores), "schedule.finish": len(scores), "data.start": 4}
    run = changed(RUN, {**short, "data.tallest": 8, **practice})
    folder = begin(tmp_path / "run", run)
    epochs = [event for event in train(run, folder) if isinstance(event, Epoch)]
    assert [epoch.epoch for epoch in epochs if epoch.best][-1] == 1 + kept


@pytest.fixture
def with_errors(tmp_path, monkeypatch):
    """The epochs of a run with these validation errors, in percent: on the paper's questions, and with harder ones."""

    def epochs_of(run, errors):
        left = iter(errors)

        def validate(state):
            plain, harder = next(left)
            return Score(100, plain, 100, 0, 1.0), Score(100, harder, 100, 0, 1.0)

        monkeypatch.setattr(loop, "_validate", validate)
        training = train(run, begin(tmp_path / "run", run))
        return [(epoch.phase, epoch.longest) for epoch in training if isinstance(epoch, Epoch)]

    return epochs_of


def test_without_patience_the_main_phase_ends_when_its_last_stage_is_mastered(with_errors):
    run = changed(RUN, {"schedule.epochs": 9, "schedule.patience": 0, "data.threshold": 0.1})
    epochs = with_errors(run, [(error, 90) for error in (5, 50, 40, 40, 5, 50)])
    assert epochs == [("main", 2), *[("main", 4)] * 4, ("finish", 4)]


def test_inputs_get_longer_when_harder_ones_are_right_as_well(with_errors):
    changes = {"schedule.epochs": 7, "schedule.patience": 0, "data.threshold": 0.1, "data.harder": 0.2}
    run = changed(RUN, changes)
    epochs = with_errors(run, [(5, 50), (15, 10), (5, 20), (5, 50), (15, 10), (5, 10), (5, 50)])
    assert epochs == [*[("main", 2)] * 3, *[("main", 4)] * 3, ("finish", 4)]
