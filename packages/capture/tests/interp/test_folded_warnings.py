"""What Python warns of at every call is warned of at every call, from the user's line, though the answer is a constant."""

from __future__ import annotations

import operator
import warnings

import pytest
import torch
from both_ways import eager

from flambeau_capture import make_region

USES = {
    "inverted": lambda t, n: (t + 1, ~n),
    "inverted by operator": lambda t, n: (t + 1, operator.inv(n)),
    "inverted by its method": lambda t, n: (t + 1, n.__invert__()),
    "inverted by its class's method": lambda t, n: (t + 1, bool.__invert__(n)),
    "inverted in a map": lambda t, n: (t + 1, list(map(operator.invert, [n, n]))),
    "inverted in a comprehension": lambda t, n: (t + 1, [~one for one in (n, True)]),
    "inverted for an index": lambda t, n: t[~n],
    "the truth of NotImplemented": lambda t, n: (t + 1, 1 if n or NotImplemented else 2),
    "the opposite of NotImplemented": lambda t, n: (t + 1, n, not NotImplemented),
    "bool() of NotImplemented": lambda t, n: (t + 1, n, bool(NotImplemented)),
    "nothing": lambda t, n: (t + 1, not n, n & True, n + 1),
}


def _calls(function):
    told = []
    for _ in range(3):
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            result = function(torch.ones(4), False)
        told.append((repr(result), [(one.category, str(one.message), one.filename, one.lineno) for one in heard]))
    return told


@pytest.mark.parametrize("use", USES)
def test_as_often_as_in_python(use):
    assert _calls(make_region(USES[use], eager, suppress_errors=False)) == _calls(USES[use])
