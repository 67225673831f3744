"""Elementwise ops of every dtype on special values: eager's bits, or as near to the exact result; and what eager refuses is refused.

Many ops are one program here (a tuple of results): one compile for two dozen of them.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from flambeau.compile import compile_recorded
from flambeau.records import Recorder

from .special_values import (
    FLOATS,
    INTEGERS,
    binary_programs,
    exact_outcome,
    outcome,
    special_values,
    split_by_refusal,
    unary_programs,
    wrong_places,
)

AT_ONCE = 24

QUICK_VALUES = (torch.float32, torch.float16, torch.int32)
QUICK_REFUSALS = (torch.int64,)


def _cases(quick: tuple[torch.dtype, ...], dtypes: tuple[torch.dtype, ...]) -> list[Any]:
    return [
        pytest.param(dtype, id=str(dtype)[6:], marks=() if dtype in quick else (pytest.mark.slow,)) for dtype in dtypes
    ]


def _compiled(programs: list[Any], inputs: list[Tensor]) -> Any:
    def together(*tensors: Tensor) -> tuple[Any, ...]:
        return tuple(program(*tensors) for program in programs)

    recorder = Recorder()
    torch.manual_seed(0)
    results = compile_recorded(together, recorder, dynamic=False)(*inputs)
    assert not recorder.eager_graphs
    assert recorder.programs
    return results


def _compare(programs: dict[str, Any], inputs: list[Tensor], only: slice = slice(None)) -> None:
    expected, _ = split_by_refusal(programs, inputs)
    names = list(expected)[only]
    assert names
    faults = []
    for first in range(0, len(names), AT_ONCE):
        part = names[first : first + AT_ONCE]
        for name, ours in zip(part, _compiled([programs[n] for n in part], inputs), strict=True):
            wrong = wrong_places(name, ours, expected[name], exact_outcome(programs[name], inputs), inputs)
            if wrong.any():
                place = tuple(wrong.nonzero()[0].tolist())
                faults.append(f"{name} at {place}: {ours[place].item()!r}, eager {expected[name][place].item()!r}")
            elif ours.stride() != expected[name].stride():
                faults.append(f"{name}: strides {ours.stride()}, eager {expected[name].stride()}")
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("dtype", _cases(QUICK_VALUES, FLOATS + INTEGERS))
def test_one_operand(dtype: torch.dtype) -> None:
    """Every elementwise op of one tensor."""
    _compare(unary_programs(), [special_values(dtype)])


@pytest.mark.slow
@pytest.mark.parametrize("dtype", _cases(FLOATS + INTEGERS, FLOATS + INTEGERS))
def test_two_operands(dtype: torch.dtype) -> None:
    """Every elementwise op of all pairs of special values; integers are not divided by zero."""
    programs = binary_programs()
    if not dtype.is_floating_point:
        programs = {n: p for n, p in programs.items() if not any(part in n for part in ("mod", "div", "remainder"))}
    values = special_values(dtype)
    _compare(programs, [values[:, None].clone(), values[None, :].clone()])


@pytest.mark.judges_itself  # what torch's fake tensors refuse already gets no graph
@pytest.mark.parametrize("dtype", _cases(QUICK_REFUSALS, (*INTEGERS, torch.float16, torch.bfloat16)))
def test_what_eager_refuses_is_refused(dtype: torch.dtype) -> None:
    """The same exception, in the same words."""
    inputs = [special_values(dtype)]
    programs = unary_programs()
    _, refused = split_by_refusal(programs, inputs)
    faults, compiled = [], 0
    for name, error in refused.items():
        recorder = Recorder()
        # A function of its own for each: what raises while one graph is captured would hide the others.
        found = outcome(compile_recorded(lambda x, p=programs[name]: p(x), recorder, dynamic=False), inputs)
        compiled += bool(recorder.breaks) or (bool(recorder.programs) and not recorder.eager_graphs)
        if type(found) is not type(error):
            faults.append(f"{name}: {type(error).__name__} in eager, here {type(found).__name__}")
        elif isinstance(error, NotImplementedError) and str(found) != str(error):
            faults.append(f"{name}: {error} in eager, here {found}")
    assert not faults, "\n".join(faults)
    assert compiled > 1
