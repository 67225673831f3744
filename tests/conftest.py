"""What every cross-package test shares: an own cache folder, failures of our own as errors, a clean state, and a witness that fails a
test in which something ran in eager, or nothing was compiled, without the test saying so."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import flambeau
from flambeau import backends, log

from .witness import Witness, verdict, watch


@pytest.fixture(autouse=True)
def strict(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """An internal failure is an error here, never a silent run in eager; the disk cache lasts for the test session."""
    monkeypatch.setenv("FLAMBEAU_SUPPRESS_ERRORS", "0")
    cache = Path(os.environ.get("FLAMBEAU_TEST_CACHE_DIR") or tmp_path_factory.getbasetemp() / "flambeau-cache")
    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(cache))
    # A package's own tests may have taken structlog's configuration away.
    log.configure(log.LogSettings())
    torch.manual_seed(0)
    flambeau.compiler.reset()
    yield
    flambeau.compiler.reset()


@pytest.fixture
def own_surroundings(strict: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What programs set is put back: variables of the environment, names of backends."""
    monkeypatch.setattr(backends, "_REGISTRY", dict(backends._REGISTRY))
    before = dict(os.environ)
    yield
    for name in os.environ.keys() - before.keys():
        del os.environ[name]
    os.environ.update(before)


@pytest.fixture(autouse=True)
def witness(request: pytest.FixtureRequest, strict: None) -> Iterator[Witness]:
    """What this test compiles; a test may ask it, and is held to it in any case (`witness.py`)."""
    with pytest.MonkeyPatch.context() as patch:
        seen = watch(patch)
        yield seen
    faults = verdict(seen, request.node)
    assert not faults, "; ".join(faults)
