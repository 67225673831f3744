"""Every case does compiled what it does plainly: results, exceptions, prints, changes to arguments; and breaks where it says."""

from __future__ import annotations

import copy
import dataclasses
import sys
from typing import Any

import pytest
import torch

import flambeau_capture

from ..comparison import assert_same, run_as_it_is
from .cases import calls, classes, containers, control_flow, modules, tensors
from .cases.table import CASES, Case

#: Cases of which a frame is left to plain Python, or that have no graph at all -> the marker that says so.
MARKS = {
    "calls.generator_with_return_and_cleanup": pytest.mark.falls_back("a generator is left inside of a with or try"),
    "classes.raises_own_class": pytest.mark.compiles(graphs=0),
    "control_flow.assertion_fails": pytest.mark.compiles(graphs=0),
    "control_flow.while_on_data": pytest.mark.falls_back("the truth of a tensor"),
    "tensors.sparse_tensor": pytest.mark.falls_back("a Tensor with layout torch.sparse_coo"),
    "containers.slice_across_a_break": pytest.mark.falls_back("a tensor is written whose memory another input shares"),
}
if sys.version_info >= (3, 12):
    # Comprehensions are loops of their function there: a break inside of one, or an iterator from before a break, leaves the rest of
    # the rounds to Python.
    MARKS |= {
        "control_flow.break_in_a_comprehension": pytest.mark.falls_back("print() or input() is called"),
        "control_flow.break_with_iterators_alive": pytest.mark.falls_back("next() of an object"),
        "control_flow.list_grows_while_its_iterator_lives": pytest.mark.falls_back("next() of an object"),
    }
THEMES = (calls, classes, containers, control_flow, modules, tensors)


def _outcome(function: Any, arguments: tuple[Any, ...]) -> Any:
    try:
        return "returned", _opened(function(*arguments))
    except Exception as error:
        return "raised", (type(error), str(error).partition("\n")[0])


def _opened(result: Any) -> Any:
    """Dataclasses as what they hold: comparing those with tensors in them raises."""
    if dataclasses.is_dataclass(result) and not isinstance(result, type):
        held = dict(result) if isinstance(result, dict) else None
        return type(result), dict(vars(result)), held
    if type(result) in (tuple, list):
        return type(result)(_opened(item) for item in result)
    return result


def _state(program: Any) -> Any:
    if isinstance(program, torch.nn.Module):
        return {
            name: value for name, value in vars(program).items() if isinstance(value, (int, float, torch.Tensor))
        }, dict(program.state_dict())
    return None


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name, marks=MARKS.get(case.name, ())) for case in CASES])
def test_same_as_plain_python(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    """Three calls each, so that cached entries behave like the first."""
    plain, program = case.make(), case.make()
    if isinstance(plain, torch.nn.Module):
        program = copy.deepcopy(plain)
    records: list[Any] = []
    compiled = flambeau_capture.make_region(program, run_as_it_is, observer=records.append)
    for call in range(3):
        torch.manual_seed(call)
        expected_arguments, arguments = case.arguments(), case.arguments()
        expected = _outcome(plain, expected_arguments)
        printed = capsys.readouterr().out
        found = _outcome(compiled, arguments)
        assert capsys.readouterr().out == printed
        assert_same(found, expected)
        assert_same(arguments, expected_arguments)
        assert_same(_state(program), _state(plain))
        if call == 0:
            graphs = sum(record.graph is not None for record in records)
            codes = {broken.code for record in records for broken in record.breaks}
            assert (graphs, codes) == (graphs if case.graphs is None else case.graphs, set(case.breaks)), [
                f"{b.file}:{b.line} {b.code} {b.reason}" for r in records for b in r.breaks
            ]
