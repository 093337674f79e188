"""Under test every shape is checked; the engine is plain PyTorch unless a test asks for both."""

import logging
import os
import signal

import jaxtyping

jaxtyping.install_import_hook("ham", "beartype.beartype")

import hypothesis  # noqa: E402
import pytest  # noqa: E402
import torch  # noqa: E402

import ham  # noqa: E402
from ham import tasks  # noqa: E402
from ham.config import Architecture, Run  # noqa: E402
from ham.runs import Trained  # noqa: E402
from ham.view.page import KNOWN  # noqa: E402
from ham.view.watch import shipped  # noqa: E402

torch.set_num_threads(1)
# A run in the background ignores Ctrl-C, and so would every program that a test starts and interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)
hypothesis.settings.register_profile(
    "ham",
    deadline=None,
    derandomize=True,
    print_blob=True,
    suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture, hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("ham")


@pytest.fixture(autouse=True)
def plain_pytorch():
    """The definition, the same random numbers and one thread, for every test."""
    ham.set_backend("reference")
    torch.manual_seed(0)
    yield
    ham.set_backend("reference")
    torch.set_num_threads(1)  # a command may have asked for more


@pytest.fixture
def unchecked():
    """For tests of what happens to wrong shapes when nobody checks them, as outside of tests."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture(params=["reference", "native"])
def engine(request, plain_pytorch):
    """Runs a float32 test once for each engine that can be had here."""
    if request.param == "native":
        native = pytest.importorskip("ham.ops.native")
        if not native.available():
            pytest.skip(native.why_not())
    ham.set_backend(request.param)
    return request.param


@pytest.fixture(scope="session")
def untrained() -> list[Trained]:
    """A model with random weights for every task, of different shapes."""
    made = []
    for number, name in enumerate(KNOWN):
        task = tasks.get(name)
        architecture = Architecture(
            kind="raw-ham" if task.online else "lstm+ham",
            controller={"search": "gru", "add": "feed-forward"}.get(name, "lstm"),
            size=6 if name == "sort4" else 20,
            hidden=(20, 32)[number % 2],
            depth=1 if name == "reverse" else 2,
            every=2 if name == "add" else 1,
            join=("rectified", "normalised", "highway")[number % 3],
            top=1.5 if number % 2 else 0.0,
            grid=64 if name in ("merge", "stack") else 0,
            cell_bound=0.0 if task.online else (0.0, 0.1)[number % 2],
        )
        torch.manual_seed(number)
        run = Run(name, architecture)
        made.append(Trained(architecture.build(task).eval(), task, run))
    return made


@pytest.fixture(scope="session", params=["random weights", "shipped"])
def models(request, untrained) -> list[Trained]:
    if request.param == "random weights":
        return untrained
    return shipped() or pytest.skip("no model is shipped yet")


@pytest.fixture
def environment_as_it_was():
    """A search on this machine tells Ray by the environment to keep to itself; the next test may want a cluster."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture(autouse=True)
def quiet_logger():
    """Handlers that a command adds hold this test's standard error."""
    yield
    logging.getLogger("ham").handlers.clear()
