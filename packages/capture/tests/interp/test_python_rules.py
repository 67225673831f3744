"""Rules of Python that a model of it gets wrong easily: each program is called several times, plainly and captured.

A call may change something first. Compared are results, what is printed, and the arguments afterwards. Every program computes on a tensor, so
that what the entry replays counts.
"""

from __future__ import annotations

import contextlib
import io
import re
import warnings

import pytest
from both_ways import eager, outcome

from flambeau_capture import make_region

from .rules import borrowed, by_index, caches, classes, flow, iterators, namespaces, objects, protocols

PROBES = [
    *objects.PROGRAMS,
    *classes.PROGRAMS,
    *caches.PROGRAMS,
    *borrowed.PROGRAMS,
    *by_index.PROGRAMS,
    *namespaces.PROGRAMS,
    *flow.PROGRAMS,
    *iterators.PROGRAMS,
    *protocols.PROGRAMS,
]
_ADDRESS = re.compile(r"0x[0-9a-f]{6,}")


def _told(function, arguments):
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        found = outcome(function, *arguments)
    return _ADDRESS.sub("0x", repr((found, printed.getvalue(), arguments)))


def _run(make, *, captured):
    function, calls = make()
    records = []
    if captured:
        function = make_region(function, eager, observer=records.append, suppress_errors=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [_told(function, call() if callable(call) else call) for call in calls], records


@pytest.mark.parametrize("make", PROBES, ids=lambda make: make.__name__)
def test_as_in_python(make):
    expected, _ = _run(make, captured=False)
    found, records = _run(make, captured=True)
    assert found == expected
    assert records, "nothing was looked at"
