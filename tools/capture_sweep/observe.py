"""One architecture under one compiler, beside eager in the same process.

In: an `Architecture`, a mode ("inference" or "training"), a compiler and its backend. Out: a record of plain data: whether every call is as in eager
(`equal`), what differs first (`wrong`), or what was raised (`raises`); the graphs of the first call, why graphs ended, and the seconds of the
first call of each. In training the gradients and buffers are compared as well, and in both modes the numbers drawn.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

import torch
from attrs import evolve, frozen
from tests.processes import Record
from tests.programs.engines import Told, breaks, joint, reset
from torch import Tensor, nn

from .architecture import Architecture, NotTiny, Ready, tensors_of

MODES = ("inference", "training")


@frozen
class Limits:
    """How far two tensors may be apart (by the norm of the difference), as parts of the norm, and of the norm of the largest tensor beside them."""

    of_norm: float
    of_largest: float


#: Other formulas for the same, in float32, through a whole network and back.
_WIDE = Limits(2e-3, 2e-6)
#: The same in float64.
_NARROW = Limits(1e-6, 1e-10)


def observe(architecture: Architecture, mode: str, compiler: str, backend: str) -> Record:
    """Run two calls in eager and compiled, and say what was seen."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            expected, eager_seconds = _eager(architecture, mode)
        except NotTiny as error:
            return {"status": "not made", "why": str(error)}
        record: Record = {"status": "ran", "eager seconds": eager_seconds}
        found = _compiled(architecture, mode, compiler, backend, record)
        if found is None:
            return record
        what = _differences(found, expected)
        if what:
            if _differences(_eager(architecture, mode)[0], expected):
                return {"status": "not run", "why": "eager is not the same twice"}
            if not _differences(found, _told_to_be_compiled(architecture, mode)):
                record["as"] = "eager where torch.compiler.is_compiling() is true"
            elif not _differs_in_float64(architecture, mode, compiler, backend):
                record["as"] = "eager in float64"
        is_wrong = bool(what) and "as" not in record
        record.update(verdict="wrong" if is_wrong else "equal", what=what)
        return record


def _compiled(
    architecture: Architecture, mode: str, compiler: str, backend: str, record: Record, *, wide: bool = False
) -> list[Record] | None:
    """The calls under a compiler; what is seen of it is written into `record`. None where it raises."""
    reset(compiler)
    told = Told()
    compiled, graphs = joint(compiler, told, backend)
    found = None
    try:
        ready = _made(architecture, mode, wide=wide)
        record["model"] = type(ready.model).__name__
        calls = _calls(ready, mode, compiled(ready.model))
        first = next(calls)
        record.update(graphs=graphs(), seconds_of_first_call=first["seconds"])
        found = [_without_time(call) for call in (first, *calls)]
    except Exception as error:
        record.update(verdict="raises", what=_told(error))
    why = list(dict.fromkeys(breaks(compiler, told)))
    record.update(graphs_after=graphs(), breaks=why, in_eager=list(told.in_eager))
    return found


def _differs_in_float64(architecture: Architecture, mode: str, compiler: str, backend: str) -> str:
    """What differs where everything is computed in float64: nothing, where a network made large what rounding made small."""
    try:
        expected, _ = _eager(architecture, mode, wide=True)
    except NotTiny as error:
        return str(error)
    record: Record = {}
    found = _compiled(architecture, mode, compiler, backend, record, wide=True)
    return str(record["what"]) if found is None else _differences(found, expected, _NARROW)


def _told_to_be_compiled(architecture: Architecture, mode: str) -> list[Record]:
    """What eager does where it is told that it is compiled: some models do something else then."""
    with mock.patch.multiple(torch.compiler, is_compiling=lambda: True, is_dynamo_compiling=lambda: True):
        return _eager(architecture, mode)[0]


def _eager(architecture: Architecture, mode: str, *, wide: bool = False) -> tuple[list[Record], float]:
    ready = _made(architecture, mode, wide=wide)
    try:
        calls = list(_calls(ready, mode, ready.model))
    except Exception as error:
        raise NotTiny(f"eager: {_told(error)}") from error
    return [_without_time(call) for call in calls], calls[0]["seconds"]


def _without_time(call: Record) -> Record:
    return {name: part for name, part in call.items() if name != "seconds"}


def _made(architecture: Architecture, mode: str, *, wide: bool = False) -> Ready:
    torch.manual_seed(0)
    ready = architecture.make()
    ready.model.train(mode == "training")
    if not wide:
        return ready
    inputs = {
        name: value.double() if isinstance(value, Tensor) and value.is_floating_point() else value
        for name, value in ready.inputs.items()
    }
    return evolve(ready, model=ready.model.double(), inputs=inputs)


def _calls(ready: Ready, mode: str, run: Callable[..., Any]) -> Iterator[Record]:
    """Two calls, of a batch and of the same batch the other way round; with what each leaves behind."""
    for turned in (False, True):
        arguments = {**ready.inputs, **(ready.labels if mode == "training" else {})}
        if turned:
            arguments = {
                name: value.flip(0) if isinstance(value, Tensor) else value for name, value in arguments.items()
            }
        torch.manual_seed(1)
        start = time.perf_counter()
        if mode == "inference":
            with torch.no_grad():
                results = tensors_of(run(**arguments))
        else:
            results = tensors_of(run(**arguments))
            _backward(results)
        seconds = round(time.perf_counter() - start, 3)
        drawn = torch.rand(1)
        found = {"results": [result.detach().clone() for result in results], "drawn": [drawn], "seconds": seconds}
        if mode == "training":
            found |= _left_behind(ready.model)
        yield found


def _backward(results: list[Tensor]) -> None:
    """Differentiate the mean square of all results."""
    parts = [
        each.double().square().mean()
        for each in results
        if each.requires_grad and not each.is_complex() and each.numel()
    ]
    if not parts:
        raise NotTiny("nothing of its results can be differentiated")
    torch.stack(parts).sum().backward()


def _left_behind(model: nn.Module) -> Record:
    gradients = {name: None if each.grad is None else each.grad.clone() for name, each in model.named_parameters()}
    model.zero_grad()
    return {"gradients": gradients, "buffers": {name: each.clone() for name, each in model.named_buffers()}}


def _differences(found: Sequence[Record], expected: Sequence[Record], limits: Limits = _WIDE) -> str:
    """The first difference in any call, as a sentence; "" where there is none."""
    pairs = enumerate(zip(found, expected, strict=True))
    return next((what for number, pair in pairs if (what := _difference(*pair, number, limits))), "")


def _difference(found: Record, expected: Record, number: int, limits: Limits) -> str:
    for part in expected:
        ours, theirs = (
            side[part] if isinstance(side[part], dict) else dict(enumerate(side[part])) for side in (found, expected)
        )
        if ours.keys() != theirs.keys():
            return f"call {number}: {len(ours)} {part} instead of {len(theirs)}"
        largest = max((each.double().norm().item() for each in theirs.values() if _is_float(each)), default=0.0)
        for name, other in theirs.items():
            if what := _apart(ours[name], other, limits, largest):
                return f"call {number}: {part} {name}: {what}"
    return ""


def _is_float(value: Tensor | None) -> bool:
    return value is not None and value.is_floating_point() and bool(value.isfinite().all())


def _apart(one: Tensor | None, other: Tensor | None, limits: Limits, largest: float) -> str:
    """How two tensors differ; `largest`: the norm of the largest beside them, of which what cancels is rounding."""
    if one is None or other is None:
        return "" if one is other else f"{_word(one)} instead of {_word(other)}"
    if (one.shape, one.dtype) != (other.shape, other.dtype):
        return f"{one.dtype} {tuple(one.shape)} instead of {other.dtype} {tuple(other.shape)}"
    if one.dtype.is_complex:
        one, other = torch.view_as_real(one), torch.view_as_real(other)
    if not one.is_floating_point():
        return "" if torch.equal(one, other) else "other numbers"
    if not torch.equal(one.isfinite(), other.isfinite()):
        return "nan or infinite elsewhere"
    distance = (one.double() - other.double()).nan_to_num(0, 0, 0).norm().item()
    norm = other.double().nan_to_num(0, 0, 0).norm().item()
    if distance <= limits.of_norm * norm or distance <= limits.of_largest * max(largest, 1.0):
        return ""
    return f"apart by {distance:.2g} where the norm is {norm:.2g}"


def _word(value: Tensor | None) -> str:
    return "none" if value is None else "some"


def _told(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__qualname__}: {' '.join(lines[:3])[:300]}"
