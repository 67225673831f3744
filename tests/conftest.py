"""What every cross-package test shares: an own cache folder, failures of our own as errors, a clean state."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import flambeau
from flambeau import log


@pytest.fixture(autouse=True)
def strict(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """An internal failure is an error here, never a silent run in eager; the disk cache lasts for the test session."""
    monkeypatch.setenv("FLAMBEAU_SUPPRESS_ERRORS", "0")
    cache: Path = tmp_path_factory.getbasetemp() / "flambeau-cache"
    monkeypatch.setenv("FLAMBEAU_CACHE_DIR", str(cache))
    # A package's own tests may have taken structlog's configuration away.
    log.configure(log.LogSettings())
    torch.manual_seed(0)
    flambeau.compiler.reset()
    yield
    flambeau.compiler.reset()
