"""Every instruction of every small program is a graph break once: prints, results, exceptions and mutations stay the same."""

from __future__ import annotations

import pytest

from .cutting import CannotCut, CannotResume, cut, cuttable, with_code
from .observing import outcome
from .programs import PROGRAMS


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
