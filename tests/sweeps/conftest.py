"""A sweep counts for itself what its programs leave to eager (`examine.py`): many are drawn to be refused, and a test of them says how many are."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def witness(strict: None) -> None:
    """In place of the one that fails a test in which anything ran in eager."""
