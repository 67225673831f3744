"""What the tests of recordings share."""

from __future__ import annotations

import gc

import pytest


@pytest.fixture(params=["twin", "native"])
def native(request: pytest.FixtureRequest) -> bool:
    """Both tables."""
    return bool(request.param == "native")


@pytest.fixture(autouse=True)
def no_leftovers() -> None:
    """What other tests left to the garbage collector counts as recordings, and a new tensor could lie where one was."""
    gc.collect()
