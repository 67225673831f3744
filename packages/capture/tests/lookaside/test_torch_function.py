"""`__torch_function__`: classes that answer torch's functions themselves see the calls of the program, as in plain Python, and no others."""

from __future__ import annotations

import inspect
import types

import pytest
import torch
from both_ways import eager
from torch.nn import Parameter
from torch.overrides import get_testing_overrides, resolve_name

from flambeau_capture import make_region

seen: list[object] = []


def _told(value):
    if isinstance(value, (tuple, list)):
        return type(value), [_told(item) for item in value]
    return type(value) if isinstance(value, (torch.Tensor, Answers)) else repr(value)


class Answers:
    """No tensor, and every function of torch takes it."""

    @classmethod
    def __torch_function__(cls, function, classes, args=(), kwargs=None):
        seen.append((function, classes, _told(args), kwargs and {name: _told(value) for name, value in kwargs.items()}))
        return "answered"


class AnsweringTensor(torch.Tensor):
    __torch_function__ = classmethod(Answers.__torch_function__.__func__)


_IN_PYTHON = [
    (function, stand_in)
    for function, stand_in in get_testing_overrides().items()
    if isinstance(function, types.FunctionType) and resolve_name(function) is not None
]


def _arguments(stand_in, make):
    """As many as the function must have; two where it takes any number."""
    for parameter in inspect.signature(stand_in).parameters.values():
        if parameter.kind is parameter.VAR_POSITIONAL:
            yield from (make(), make())
        elif parameter.kind is not parameter.VAR_KEYWORD and parameter.default is parameter.empty:
            yield make()


def _calls(program):
    """What a program comes to, and the calls of torch's functions that its objects saw meanwhile."""
    seen.clear()
    try:
        result = program(torch.ones(2))
    except Exception as error:
        return type(error), str(error), list(seen)
    return result[0].tolist(), result[1], list(seen)


@pytest.mark.parametrize(
    "make", [Answers, lambda: torch.ones(2).as_subclass(AnsweringTensor)], ids=["object", "tensor"]
)
@pytest.mark.parametrize(
    ("function", "stand_in"), _IN_PYTHON, ids=[resolve_name(function) for function, _ in _IN_PYTHON]
)
def test_every_function_of_torch_in_python_asks_its_arguments(function, stand_in, make):
    given = tuple(_arguments(stand_in, make))

    def program(x):
        y = x + 1
        return y * 2, function(*given)

    wanted = _calls(program)
    assert _calls(make_region(program, eager)) == wanted


def test_all_such_functions_are_looked_at():
    assert len(_IN_PYTHON) > 100


def test_who_switches_the_protocol_off_gets_the_plain_function():
    given = torch.ones(2, 2).as_subclass(AnsweringTensor)

    def program(x):
        return x + 1, type(torch.atleast_1d(given)), type(torch.broadcast_tensors(given, x)[0])

    with torch._C.DisableTorchFunctionSubclass():
        assert make_region(program, eager)(torch.ones(2))[1:] == program(torch.ones(2))[1:]


class Answering(Parameter):
    @classmethod
    def __torch_function__(cls, function, classes, args=(), kwargs=None):
        with torch._C.DisableTorchFunctionSubclass():
            result = function(*args, **(kwargs or {}))
        return result * 100 if isinstance(result, torch.Tensor) else result


class InheritsTheAnswer(Answering):
    pass


class WithAShapeOfItsOwn(Parameter):
    @property
    def shape(self):
        return (8,)


@pytest.mark.parametrize("kind", [Answering, InheritsTheAnswer, WithAShapeOfItsOwn])
def test_a_parameter_that_answers_for_itself_is_no_plain_tensor(kind):
    parameter = kind(torch.ones(2, 2))

    def program(x):
        return torch.sum(parameter) + x, str(parameter.shape)

    wanted, shape = program(torch.ones(2))
    result, seen_shape = make_region(program, eager, fullgraph=True)(torch.ones(2))
    assert torch.equal(result, wanted) and seen_shape == shape


def test_a_parameter_whose_class_answers_later_is_no_plain_tensor_then():
    class Later(Parameter):
        pass

    parameter = Later(torch.ones(2))

    def once(graph, inputs):
        """Not by torch's functions, which would ask the class themselves."""
        results = graph(*inputs)
        return lambda *inputs: results

    def program(x):
        return x + 1, torch.atleast_1d(parameter)

    region = make_region(program, once)
    assert region(torch.ones(2))[1].tolist() == [1.0, 1.0]
    Later.__torch_function__ = classmethod(Answers.__torch_function__.__func__)
    assert region(torch.ones(2))[1] == "answered"
