"""What an operation warns of while it runs on fakes is told later, for the place that eager gives it for."""

from __future__ import annotations

import warnings

import pytest
import torch
from both_ways import eager

from flambeau_capture import make_region


def _innermost(x, level):
    # Level 2 is in torch's own code, and each further one a call further out.
    return torch.nn.functional.softmax(x, _stacklevel=level)


def _middle(x, level):
    return _innermost(x, level) + 1


def _outermost(x, level):
    return _middle(x, level) * 2


def _told(function, level):
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        for _ in range(2):
            function(torch.ones(1, 4), level)
    return [(one.category, str(one.message), one.filename, one.lineno) for one in heard]


@pytest.mark.parametrize("level", range(2, 6))
def test_a_warning_is_for_the_caller_that_its_level_counts(level):
    """Of several calls that are traced into one graph."""
    expected = _told(_outermost, level)
    assert len(expected) == 2
    assert _told(make_region(_outermost, eager, fullgraph=True, suppress_errors=False), level) == expected
