"""The way to `tracing`, which the tests of every folder share; and products are library calls however small, so that tests of what is done with those need no large ones."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from flambeau_inductor.lowering import small_products

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def products_are_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all sizes; a file about small products has another fixture of this name."""
    monkeypatch.setattr(small_products, "is_faster", lambda left, right: False)
