"""torch's switch for `__torch_function__`, its questions, and the stack of modes, which is left as the program leaves it."""

from __future__ import annotations

import pytest
import torch
from both_ways import eager, recorded
from torch import Tensor
from torch.overrides import (
    TorchFunctionMode,
    _get_current_function_mode_stack,
    _pop_mode_temporarily,
    has_torch_function,
    has_torch_function_unary,
)
from torch.utils.checkpoint import checkpoint

from flambeau_capture import make_region


class Named(Tensor):
    pass


class Scales(TorchFunctionMode):
    def __init__(self, factor):
        self.factor, self.asked = factor, 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.asked += 1
        result = func(*args, **(kwargs or {}))
        return result * self.factor if func in (torch.sin, Tensor.sin) else result


def _told(value):
    return (type(value), value.as_subclass(Tensor).tolist()) if isinstance(value, Tensor) else value


def _agree(program, *args, modes=()):
    region = recorded(program, [], fullgraph=True)
    for _ in range(2):
        found = []
        for call in (program, region):
            entered = [Scales(factor) for factor in modes]
            for mode in entered:
                mode.__enter__()
            results = call(*args)
            depth = torch._C._len_torch_function_stack()
            left = [torch._C._pop_torch_function_stack().factor for _ in range(depth)]
            found.append(([_told(result) for result in results], left, [mode.asked for mode in entered]))
        assert found[0] == found[1]


def test_the_switch():
    def program(x):
        with torch._C.DisableTorchFunctionSubclass():
            off = type(x + 1), has_torch_function_unary(x), torch._C._is_torch_function_enabled()
        with torch._C.DisableTorchFunction():
            all_off = type(x * 2)
        return x + 1, *off, all_off, has_torch_function((1, x)), torch._C._is_torch_function_enabled()

    _agree(program, torch.ones(3).as_subclass(Named))


def test_the_switch_for_modes():
    def program(x):
        with Scales(2) as mode:
            with torch._C.DisableTorchFunction():
                plain = x.sin()
            with torch._C.DisableTorchFunctionSubclass():
                scaled = x.sin()
            return plain, scaled, mode.asked, has_torch_function_unary(x), len(_get_current_function_mode_stack())

    _agree(program, torch.ones(3))


def test_a_mode_that_the_frame_enters_stays():
    def program(x):
        Scales(3).__enter__()
        return (x.sin(),)

    _agree(program, torch.ones(3))


def test_modes_that_the_caller_entered():
    def within(x):
        return x.sin(), len(_get_current_function_mode_stack())

    def left(x):
        y = x.sin()
        torch.overrides._pop_mode()
        return y, x.sin()

    def set_aside(x):
        with _pop_mode_temporarily() as mode:
            y = x.sin()
        return y, x.sin(), mode.factor

    def replaced(x):
        torch.overrides._pop_mode()
        Scales(7).__enter__()
        return (x.sin(),)

    for program in (within, left, set_aside, replaced):
        _agree(program, torch.ones(3), modes=(2, 5))


def test_a_frame_that_breaks_while_no_class_is_asked_runs_in_plain_python():
    graphs = []

    def program(x):
        y = x + 1
        with torch._C.DisableTorchFunctionSubclass():
            print(end="")
            return y, type(x * 2)

    result, cls = recorded(program, graphs)(torch.ones(3).as_subclass(Named))
    assert type(result) is Named and cls is Tensor and not graphs


@pytest.mark.parametrize(
    "operation",
    [
        lambda x: checkpoint(torch.sin, x, use_reentrant=False),
        lambda x: torch.func.vmap(torch.sin)(x),
        lambda x: Doubles.apply(x).sin(),
    ],
)
def test_what_no_mode_is_asked_about_as_in_eager_breaks(operation):
    def program(x):
        with Scales(3) as mode:
            y = operation(x)
        return y, mode.asked

    records = []
    region, x = make_region(program, eager, observer=records.append), torch.ones(3)
    assert _told(region(x)[0]) == _told(program(x)[0]) and region(x)[1] == program(x)[1]
    assert any(record.breaks for record in records)


class Doubles(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2
