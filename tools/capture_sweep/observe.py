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
from tests.processes import Record
from tests.programs.engines import Told, breaks, joint, reset
from torch import Tensor, nn

from .architecture import Architecture, NotTiny, Ready, tensors_of

MODES = ("inference", "training")
#: How far two results may be apart, beside their norm: other formulas for the same, in float32, through a whole network and back.
_DISTANCE = 2e-3
#: Elements that are no further apart than this are the same whatever the norm: what is left of gradients that cancel.
_ROUNDING = 2e-5


def observe(architecture: Architecture, mode: str, compiler: str, backend: str) -> Record:
    """Run two calls in eager and compiled, and say what was seen."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            expected, eager_seconds = _eager(architecture, mode)
        except NotTiny as error:
            return {"status": "not made", "why": str(error)}
        reset(compiler)
        told = Told()
        compiled, graphs = joint(compiler, told, backend)
        record: Record = {"status": "ran", "eager seconds": eager_seconds}
        try:
            ready = _made(architecture, mode)
            record["model"] = type(ready.model).__name__
            calls = _calls(ready, mode, compiled(ready.model))
            found = [next(calls)]
            record.update(graphs=graphs(), seconds_of_first_call=found[0].pop("seconds"))
            found += [_without_time(call) for call in calls]
        except Exception as error:
            found = []
            record.update(verdict="raises", what=_told(error))
        record.update(
            graphs_after=graphs(), breaks=list(dict.fromkeys(breaks(compiler, told))), in_eager=list(told.in_eager)
        )
        if found:
            what = _differences(found, expected)
            if what and not _differences(found, _told_to_be_compiled(architecture, mode)):
                record["as"] = "eager where torch.compiler.is_compiling() is true"
                what = ""
            record.update(verdict="wrong" if what else "equal", what=what)
        return record


def _told_to_be_compiled(architecture: Architecture, mode: str) -> list[Record]:
    """What eager does where it is told that it is compiled: some models do something else then."""
    with mock.patch.multiple(torch.compiler, is_compiling=lambda: True, is_dynamo_compiling=lambda: True):
        return _eager(architecture, mode)[0]


def _eager(architecture: Architecture, mode: str) -> tuple[list[Record], float]:
    ready = _made(architecture, mode)
    try:
        calls = list(_calls(ready, mode, ready.model))
    except Exception as error:
        raise NotTiny(f"eager: {_told(error)}") from error
    return [_without_time(call) for call in calls], calls[0]["seconds"]


def _without_time(call: Record) -> Record:
    return {name: part for name, part in call.items() if name != "seconds"}


def _made(architecture: Architecture, mode: str) -> Ready:
    torch.manual_seed(0)
    ready = architecture.make()
    ready.model.train(mode == "training")
    return ready


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


def _differences(found: Sequence[Record], expected: Sequence[Record]) -> str:
    """The first difference in any call."""
    pairs = enumerate(zip(found, expected, strict=True))
    return next((what for number, pair in pairs if (what := _difference(*pair, number))), "")


def _difference(found: Record, expected: Record, number: int) -> str:
    """The first part of a call that differs, as a sentence; "" where there is none."""
    for part in expected:
        ours, theirs = (
            list(side[part].values()) if isinstance(side[part], dict) else side[part] for side in (found, expected)
        )
        if len(ours) != len(theirs):
            return f"call {number}: {len(ours)} {part} instead of {len(theirs)}"
        names = list(expected[part]) if isinstance(expected[part], dict) else range(len(theirs))
        for name, one, other in zip(names, ours, theirs, strict=True):
            if what := _apart(one, other):
                return f"call {number}: {part} {name}: {what}"
    return ""


def _apart(one: Tensor | None, other: Tensor | None) -> str:
    if one is None or other is None:
        return (
            ""
            if one is other
            else f"{'none' if one is None else 'some'} instead of {'none' if other is None else 'some'}"
        )
    if (one.shape, one.dtype) != (other.shape, other.dtype):
        return f"{one.dtype} {tuple(one.shape)} instead of {other.dtype} {tuple(other.shape)}"
    if one.dtype.is_complex:
        one, other = torch.view_as_real(one), torch.view_as_real(other)
    if not one.is_floating_point():
        return "" if torch.equal(one, other) else "other numbers"
    if not torch.equal(one.isfinite(), other.isfinite()):
        return "nan or infinite elsewhere"
    distance = (one - other).nan_to_num(0, 0, 0).double()
    norm = other.double().nan_to_num(0, 0, 0).norm().item()
    if distance.norm().item() <= _DISTANCE * norm or distance.abs().max().item() <= _ROUNDING:
        return ""
    return f"apart by {distance.norm().item():.2g} where the norm is {norm:.2g}"


def _told(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__qualname__}: {' '.join(lines[:3])[:300]}"
