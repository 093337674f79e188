import os

import pytest


@pytest.fixture(autouse=True)
def environment_as_it_was():
    """A search on this machine tells Ray by the environment to keep to itself; the next test may want a cluster."""
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)
