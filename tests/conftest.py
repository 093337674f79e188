"""Under test every shape is checked; the engine is plain PyTorch unless a test asks for both."""

import jaxtyping

jaxtyping.install_import_hook("ham", "beartype.beartype")

import hypothesis  # noqa: E402
import pytest  # noqa: E402
import torch  # noqa: E402

import ham  # noqa: E402

torch.set_num_threads(1)
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
    """The definition, and the same random numbers, for every test."""
    ham.set_backend("reference")
    torch.manual_seed(0)
    yield
    ham.set_backend("reference")


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
