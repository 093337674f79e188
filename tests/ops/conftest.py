from __future__ import annotations

import pytest

from ham.ops import native


@pytest.fixture(autouse=True)
def nan_in_workspaces(monkeypatch):
    """Workspaces exactly as large as asked for, and full of NaN, so that what is read before it is written shows."""
    monkeypatch.setattr(native, "fill_workspaces_with_nan", True)
