"""What every test of the command line needs."""

import logging

import pytest


@pytest.fixture(autouse=True)
def quiet_logger():
    """Handlers that a command adds hold this test's standard error."""
    yield
    logging.getLogger("ham").handlers.clear()
