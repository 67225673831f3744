"""A fixed slice of each of torch's databases, forward and backward, in several dtypes and layouts, with its error inputs.

`aot_eager` compiles what it is given to ATen graphs and runs those: no C++ compiler, so that a slice is quick. `full.py` runs everything on
any backend. A case that `exceptions.py` lists must differ, and any other must not; a graph may run in eager where it says so.
"""

from __future__ import annotations

import pytest
import torch

import flambeau

from .exceptions import IN_EAGER, KNOWN, NOT_RUN, reason
from .judge import judge
from .programs import DATABASES, Case, Program, cases

#: Database -> one case in so many. Custom operators are left to the whole run: a case of theirs may take minutes.
SHARES = {"op": 500, "error": 28, "module": 40, "optimizer": 6, "function": 12}
SAMPLES = 2


def _slice() -> list[Case]:
    found = [case for name, share in SHARES.items() for case in cases(name)[share // 2 :: share]]
    # Higher-order operators in one type alone, each of which must be one graph.
    found += [case for case in cases("higher") if case.dtype == "f32"]
    return [case for case in found if reason(NOT_RUN, case.identity) is None]


@pytest.mark.judges_itself
@pytest.mark.parametrize("case", _slice(), ids=lambda case: case.identity)
def test_equals_eager(case: Case) -> None:
    """The first samples of a case."""
    findings = [judge(program, "aot_eager") for program in case.programs(SAMPLES)]
    faults = [f"{finding.label}: {finding.fault}" for finding in findings if finding.fault]
    known = reason(KNOWN, case.identity)
    if known is not None:
        assert faults, f"does not differ from eager any more: {known}"
        return
    assert not faults, "; ".join(faults)
    allowed = reason(IN_EAGER, case.identity)
    told = [why for finding in findings for why in finding.eager]
    assert [why for why in told if allowed is None or allowed not in why] == []
    assert allowed is not None or all(finding.graphs or finding.raised for finding in findings)


@pytest.mark.judges_itself
@pytest.mark.parametrize("whole", [False, True])
def test_a_program_that_must_be_whole_may_not_break(whole: bool) -> None:
    """The same break is passed over in a program that may be in parts."""

    def broken(x: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        flambeau.compiler.graph_break()
        return y.cos()

    finding = judge(Program("broken", lambda: (broken, (torch.ones(3),), {}), whole=whole), "aot_eager")
    assert ("GraphBreakError" in finding.fault) == whole
    assert finding.graphs == (0 if whole else 2)


def test_every_database_has_cases() -> None:
    """A database that torch renamed or emptied would pass unseen."""
    assert {name for name in DATABASES if len(cases(name)) > 5} == set(DATABASES)
