"""Fixtures shared by the folders, and the way to `both_ways`."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

import pytest
import structlog
import torch

from flambeau_capture import log, make_region

sys.path.insert(0, str(Path(__file__).parent))

from both_ways import assert_equal, eager, outcome


def matrix():
    """The usual argument."""
    return torch.linspace(-2, 3, 12).reshape(3, 4)


def _check(function, *args, fullgraph=True, **options) -> list[Any]:
    """Three calls, each compared with plain Python; the records of what was compiled."""
    records: list[Any] = []
    region = make_region(function, eager, observer=records.append, fullgraph=fullgraph, **options)
    arguments = args or (matrix(),)
    for _ in range(3):
        clones = [[a.clone() if isinstance(a, torch.Tensor) else a for a in arguments] for _ in range(2)]
        assert_equal((outcome(region, *clones[0]), clones[0]), (outcome(function, *clones[1]), clones[1]))
    return records


def _broken(function, *args) -> set[str]:
    """The codes of what breaks the graph; results are compared all the same."""
    return {b.code for record in _check(function, *args, fullgraph=False) for b in record.breaks}


@pytest.fixture
def check():
    """`check(function, *args)`: one graph that does what plain Python does."""
    return _check


@pytest.fixture
def broken():
    """`broken(function, *args)`: the codes of its breaks."""
    return _broken


@pytest.fixture(autouse=True)
def _logs_alone():
    """Events go where they go without flambeau, which a test before may have loaded."""
    log.logger.send_to(None)


@pytest.fixture
def quiet_log():
    """Only errors are logged, for programs whose own output is compared."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    yield
    structlog.reset_defaults()
