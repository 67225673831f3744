"""The way to `tracing`, which the tests of every folder share; and products and attention are treated as if they were large, so that tests of what is done with those need no large ones."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from flambeau_inductor.lowering import small_products
from flambeau_inductor.rewrite import masked_attention

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def products_are_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all sizes; a file about small products has another fixture of this name."""
    monkeypatch.setattr(small_products, "is_faster", lambda left, right: False)


@pytest.fixture(autouse=True)
def attention_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Enough to be worth compiling a kernel; what small attention is has a test that takes the fixture's value back."""
    monkeypatch.setattr(masked_attention, "is_small", lambda query, keys, value: False)
