"""A fixed random choice of torch's op database, forward and backward through the default backend, equal to eager.

An op that is not lowered becomes a library call, so every one of them must give the right answer; a graph that runs in eager
altogether is a fault unless it is listed. The whole database runs in the slow suite.
"""

from __future__ import annotations

import pytest
from torch.testing._internal.opinfo.core import OpInfo

from .database import DIFFERS, RUNS_IN_EAGER, candidates, check, choice, identifier, parameters

SAMPLES = 2
CHOSEN = choice(150, seed=20)


@pytest.mark.parametrize("op", parameters(CHOSEN))
@pytest.mark.judges_itself  # some ops have no graph: they answer questions, or break
def test_equals_eager(op: OpInfo) -> None:
    """Forward and backward of a few samples."""
    check(op, SAMPLES)


@pytest.mark.slow
@pytest.mark.parametrize("op", parameters(candidates(), strict=True))
@pytest.mark.judges_itself
def test_whole_database(op: OpInfo) -> None:
    """Every op, more samples."""
    check(op, 6)


def test_the_lists_name_ops() -> None:
    """What is excused exists."""
    assert RUNS_IN_EAGER.keys() | DIFFERS.keys() <= {identifier(op) for op in candidates()}
