"""Every instruction of every small program is a graph break once: prints, results, exceptions and mutations stay the same."""

from __future__ import annotations

import contextlib
import copy
import io

import pytest

from .cutting import CannotCut, CannotResume, cut, cuttable, with_code
from .programs import PROGRAMS


def outcome(function, args):
    """What a call does: printed text, result or exception, and the arguments afterwards."""
    args = copy.deepcopy(args)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        try:
            result = repr(function(*args))
        except Exception as error:
            result = describe(error)
    return out.getvalue(), result, repr(args)


def describe(error):
    chain = []
    while error is not None and len(chain) < 5:
        cause = error.__cause__
        chain.append((type(error).__name__, str(error), type(cause).__name__))
        error = error.__context__
    return chain


@pytest.mark.parametrize(("function", "args"), PROGRAMS, ids=lambda v: getattr(v, "__name__", None))
def test_cut_everywhere(function, args):
    """A break at any instruction changes nothing that can be seen."""
    expected = outcome(function, args)
    done = 0
    for index in cuttable(function.__code__):
        try:
            code = cut(function.__code__, index)
        except (CannotCut, CannotResume):
            continue
        assert outcome(with_code(function, code), args) == expected, f"cut at {index}"
        done += 1
    assert done > len(cuttable(function.__code__)) // 2
