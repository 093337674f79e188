from __future__ import annotations

import pytest

from ham.ops import native


@pytest.fixture(autouse=True)
def nan_in_buffers():
    """Buffers exactly as large as asked for, and full of NaN, so that what is read before it is written shows."""
    native.fill_with_nan(True)
    yield
    native.fill_with_nan(False)
