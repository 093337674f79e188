"""`ham bench`: the peers compute the same thing, and the command runs; nothing here is timed."""

import json
import logging
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from ham import bench, cli, ops
from ham.bench import flops, peers, profile, report
from ham.bench.timing import interleaved, running_on
from ham.bench.work import SETTINGS, Trainer, Work
from ham.core.errors import InputError
from ham.core.install import install
from ham.ops import native

TINY = bench.Plan(
    sizes=(2, 4),
    memories=(4, 8),
    reference=4,
    tall=16,
    items=50,
    profile=0.0,
    batches=1,
    repetitions=1,
    accesses=16,
    compile_limit=0,
)


@pytest.fixture
def work():
    return Work.draw(np.random.default_rng(3), 8)


@pytest.fixture
def jax_peer(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_backend_optimization_level=0")
    module, why = peers.jax_peer()
    if module is None:
        pytest.skip(why)
    return module


def no_jax():
    return None, "left out of this test"


@pytest.fixture
def no_heavy_peers(monkeypatch):
    if why := native.why_not():
        pytest.skip(why)
    monkeypatch.setattr(peers, "jax_peer", no_jax)


@pytest.fixture(scope="module")
def found():
    if why := native.why_not():
        pytest.skip(why)
    before = ops.backend(), torch.get_num_threads()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(peers, "jax_peer", no_jax)
        found = bench.measure(TINY)
    assert (ops.backend(), torch.get_num_threads()) == before
    return found


def loss_and_gradients(trainer, work):
    cost = trainer.cost(work)
    return cost.loss, {name: p.grad.clone() for name, p in trainer.model.named_parameters()}


def assert_same(found, expected):
    """Equal to float32's accuracy, each tensor measured by its largest entry."""
    assert found[0] == pytest.approx(expected[0], rel=1e-5)
    assert found[1].keys() == expected[1].keys()
    for name, gradient in expected[1].items():
        error = (torch.tensor(found[1][name].tolist()) - gradient).abs().max()
        assert error <= 1e-4 * gradient.abs().max() + 1e-6, name


@pytest.mark.filterwarnings("ignore")
def test_jax_computes_the_same_loss_gradients_and_steps(jax_peer):
    work = Work.draw(np.random.default_rng(3), 4)
    ours = Trainer()
    loss, gradients = loss_and_gradients(ours, work)
    scale = min(1.0, SETTINGS.optimiser.clip / float(ours.flat.gradient.norm()))
    peer = peers.jax_trainer(jax_peer, ours)
    batch = jax_peer.padded(work.examples, work.uniforms, work.leaves)
    found_loss = peer.step(batch)
    # After one step Adam's mean is a tenth of the clipped gradient.
    found = {name: np.asarray(mean) / (0.1 * scale) for name, mean in peer.mean.items()}
    assert_same((found_loss, found), (loss, gradients))
    peer.step(batch)
    ours.step(work)
    ours.step(work)
    for name, weights in ours.model.named_parameters():
        assert np.allclose(peer.parameters[name], weights.detach().numpy(), atol=1e-4), name


def test_the_compiled_peer_computes_the_same_loss_and_gradients(work):
    folder = peers.benchmarks()
    if folder is None:
        pytest.skip(peers.NEEDS_REPOSITORY)
    spec = peers.importlib.util.spec_from_file_location("compile_peer", folder / "compile_peer.py")
    module = peers.importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    trainer = Trainer()
    expected = loss_and_gradients(trainer, work)
    trainer.gradient.model = module.Plain(trainer.model, compiled=False)
    with running_on("reference", 1):
        assert_same(loss_and_gradients(trainer, work), expected)


def test_flops_are_those_of_the_layers_that_ran():
    """Counted once more, layer by layer, by hooks on the reference."""
    trainer, leaves = Trainer(), 4
    work = Work.draw(np.random.default_rng(0), leaves, batch=1, full=True)
    multiplied = 0

    def count(layer, given, result):
        nonlocal multiplied
        multiplied += layer.weight.numel() * (result.numel() // layer.out_features)

    for module in trainer.model.modules():
        if isinstance(module, torch.nn.Linear) and module is not trainer.model.baseline:
            module.register_forward_hook(count)
    with running_on("reference", 1):
        trainer.cost(work)
    w = flops.Widths()
    timesteps, levels = leaves + 1, 2
    multiplied += timesteps * 4 * w.cells * (w.size + w.cells)  # the LSTM cell is no Linear
    multiplied -= timesteps * (levels - 1) * w.cells * w.hidden  # SEARCH's query half, once a timestep
    assert flops.episode_flops(leaves) == 2 * (3 * multiplied - leaves * w.features * w.hidden)


def test_a_taller_tree_holds_the_same_rows():
    rng = np.random.default_rng(0)
    short = Work.draw(rng, 8, batch=5)
    tall = short.in_taller(rng, 64)
    assert tall.examples is short.examples
    assert tall.uniforms.shape == (*short.examples.counted.shape, 6)
    assert len(set(tall.places.tolist())) == short.examples.inputs.shape[1]
    costs = []
    for engine in ("native", "reference"):
        with running_on(engine, 1):
            costs.append(Trainer().cost(tall).loss)
    assert costs[0] == pytest.approx(costs[1], rel=1e-4)


def test_parts_are_shares_of_the_functions_that_perf_saw():
    told = """
    # Overhead  Symbol
        40.00%  [.] ham::outer(float*, long)::{lambda(auto:1, long)#1}::operator()<int>
        20.00%  [.] ham::product<(ham::Start)0, (ham::Finish)0>(float*, long)
        15.00%  [.] ham::scatter<false>(float* const*, float const*, long)
        12.50%  [.] ham::update_forward<ham::Ahead&>(ham::Model const&)
         2.50%  [.] ham_objective
        10.00%  [.] ham_gradient
    """
    found = profile.shares(told)
    assert found["matrix products"] == pytest.approx(0.6)
    assert found["gather and scatter"] == pytest.approx(0.15)
    assert found["the objective"] == pytest.approx(0.025)
    assert found[profile.REST] == pytest.approx(0.1)
    assert sum(found.values()) == pytest.approx(1)
    assert profile.shares("nothing") == {}


def test_the_page_says_where_time_goes_or_why_it_does_not(found):
    assert "Not known: left out." in report.markdown(found)
    assert "| matrix products | 60% |" in report.markdown(replace(found, parts={"matrix products": 0.6}))


def test_jobs_take_turns():
    order = []
    jobs = {name: [lambda name=name: order.append(name)] * 2 for name in "ab"}
    assert interleaved(jobs, repetitions=2, turn=0.0).keys() == {"a", "b"}
    assert "".join(order) == "aaaabbbb" + "aabbaabb"


def test_the_command_prints_and_writes(no_heavy_peers, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(bench, "QUICK", TINY)
    arguments = ["--quick", "--sizes", "2", "4", "--out", str(tmp_path / "docs")]
    assert cli.main(["bench", *arguments]) == 0
    printed = capsys.readouterr().out
    assert "left out of this test" in printed
    assert cli.main(["bench", *arguments, "--json"]) == 0
    logging.getLogger("ham").handlers.clear()
    written = json.loads(capsys.readouterr().out)
    assert list(written)[:-1] == list(report.TARGETS)
    assert written["native_vs_eager"] > 0
    assert written["native_vs_jax"] is None
    assert written["access_2e20_vs_2e10"] is None
    assert written["call_vs_softmax_forward"] > 0
    assert written["call_vs_softmax_both"] > 0
    assert "### One access called from Python" in printed
    assert (tmp_path / "docs" / "performance.md").read_text().count(report.BEGIN) == 1
    assert "<svg" in (tmp_path / "docs" / "performance.svg").read_text()


def test_a_page_keeps_the_words_around_its_tables(found, tmp_path):
    page = tmp_path / report.PAGE
    page.write_text(f"# Speed\n\nBefore.\n\n{report.BEGIN}\nold\n{report.END}\n\nAfter.\n")
    for _ in range(2):
        bench.write_report(found, tmp_path)
    text = page.read_text()
    assert text.startswith("# Speed\n\nBefore.")
    assert text.endswith(f"{report.END}\n\nAfter.\n")
    assert "old" not in text
    assert text.count("### Targets") == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--sizes"], "--sizes needs at least one"),
        (["--sizes", "48"], "power of two"),
        (["--sizes", "x"], "--sizes"),
        (["--out", "/dev/null/docs"], "cannot write /dev/null/docs: /dev/null is not a folder"),
    ],
)
def test_the_command_refuses_in_words(arguments, said, capsys):
    assert cli.main(["bench", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_without_the_engine_there_is_nothing_to_measure(monkeypatch):
    monkeypatch.setattr(native, "why_not", lambda: "no compiler")
    with pytest.raises(InputError, match="no compiler"):
        bench.measure(TINY)


def test_outside_the_repository_the_peers_are_missed_in_words(monkeypatch, tmp_path):
    monkeypatch.setattr(peers, "ham", SimpleNamespace(__file__=str(tmp_path / "lib" / "ham" / "__init__.py")))
    assert peers.jax_peer() == (None, peers.NEEDS_REPOSITORY)
    assert peers.compiled_seconds(4, 1, 1, 1) == (None, peers.NEEDS_REPOSITORY)


def test_a_peer_that_is_not_installed_is_told_from_one_that_fails(monkeypatch, tmp_path):
    monkeypatch.setattr(peers, "benchmarks", lambda: tmp_path)
    (tmp_path / "jax_peer.py").write_text("from ham.train.losses import A_NAME_THAT_MOVED\n")
    monkeypatch.setattr(peers.importlib.util, "find_spec", lambda name: None)
    assert peers.jax_peer() == (None, f"JAX is not installed; {install('bench')} brings it")
    monkeypatch.setattr(peers.importlib.util, "find_spec", lambda name: object())
    with pytest.raises(InputError, match=r"jax_peer\.py cannot be imported: .*A_NAME_THAT_MOVED"):
        peers.jax_peer()


def test_a_compilation_that_takes_too_long_is_ended():
    if peers.benchmarks() is None:
        pytest.skip(peers.NEEDS_REPOSITORY)
    assert peers.compiled_seconds(4, 1, 1, 0) == (None, "not within 0 s")


def test_every_size_is_a_power_of_two():
    with pytest.raises(InputError, match="48"):
        replace(bench.FULL, sizes=(48,))
