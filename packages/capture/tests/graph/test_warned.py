"""Warnings that only kernels give are given for a graph as well, at each call, and none that the kernel would not give."""

from __future__ import annotations

import warnings

import pytest
import torch
from both_ways import eager

from flambeau_capture import make_region

#: Programs on a matrix of one row: those that warn, and those that do not.
WARN = {
    "spread of one": lambda x: x.std(0),
    "spread and mean of one": lambda x: torch.var_mean(x, 0),
    "search in columns": lambda x: torch.bucketize(x, torch.ones(4, 2)[:, 0]),
    "complex to real": lambda x: torch.complex(x, x).to(torch.float32),
    "complex copied to real": lambda x: torch.empty(1, 4).copy_(torch.complex(x, x)),
    "complex number copied to real": lambda x: (x + 0).copy_(1j),
}
SILENT = {
    "spread of several": lambda x: x.std(1),
    "search in rows": lambda x: torch.bucketize(x, torch.ones(2, 4)[0]),
    "real to real": lambda x: x.to(torch.float64),
    "real copied": lambda x: torch.empty(1, 4).copy_(x),
    "number copied": lambda x: x.select(1, 0).copy_(1),
    "complex to complex": lambda x: torch.complex(x, x).to(torch.complex128),
}


@pytest.fixture(autouse=True)
def _each_time():
    """Warnings that torch gives once in a process are given each time."""
    before = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    yield
    torch.set_warn_always(before)


def _told(function):
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        for _ in range(2):
            function(torch.ones(1, 4))
    return [(one.category, str(one.message), one.filename, one.lineno) for one in heard]


@pytest.mark.parametrize("name", [*WARN, *SILENT])
def test_kernels_warn_as_in_eager(name):
    """As often, with the same text, for the same line."""
    function = WARN.get(name) or SILENT[name]
    expected = _told(function)
    assert bool(expected) == (name in WARN)
    assert _told(make_region(function, eager, fullgraph=True, suppress_errors=False)) == expected
