"""functools, itertools, collections, math, copy, logging, warnings, dataclasses.

In: calls of standard library functions that are written in C or whose Python body is not worth tracing. Out: the same on values.
"""

from __future__ import annotations

import collections
import copy
import dataclasses
import functools
import inspect
import logging
import math
import random
import reprlib
import time
import types
import warnings
from typing import TYPE_CHECKING, Any

import torch

from ..interp.signals import GraphBreak
from ..values.base import MISSING, Value
from ..values.builtins import ClassValue
from ..values.constants import ConstantValue
from ..values.functions import FunctionValue, MethodValue, PartialValue
from ..values.mappings import DictValue, SetValue
from ..values.objects import ObjectValue
from ..values.sequences import ListValue, SequenceValue, TupleValue
from ..values.symbolic import SymbolicValue
from ..values.tensor import TensorValue
from .registry import impure, replaces, replaces_wrapper
from .torch_state import call_later

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..interp.tracer import Tracer

    Args = Sequence[Value]
    Kwargs = Mapping[str, Value]

impure(time.time, time.perf_counter, time.monotonic, time.sleep, time.process_time, time.perf_counter_ns, time.time_ns)
impure(
    *(
        getattr(random, name)
        for name in (
            "random",
            "randint",
            "choice",
            "uniform",
            "shuffle",
            "sample",
            "seed",
            "gauss",
            "randrange",
            "getrandbits",
        )
    )
)


@replaces(
    *(
        getattr(random, name)
        for name in ("random", "randint", "choice", "uniform", "shuffle", "sample", "seed", "gauss", "randrange")
    )
)
def python_random(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    raise GraphBreak("unsupported-call", "Python's random module")


@replaces(dataclasses.fields)
def fields(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    cls = args[0].object if isinstance(args[0], ClassValue) else args[0].python_type()
    if not dataclasses.is_dataclass(cls):
        raise t.raised(TypeError("must be called with a dataclass type or instance"))
    return t.sequence([t.wrap_pinned(found) for found in dataclasses.fields(cls)], tuple)


@replaces(dataclasses.is_dataclass)
def is_dataclass(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    cls = args[0].object if isinstance(args[0], ClassValue) else args[0].python_type()
    return ConstantValue(dataclasses.is_dataclass(cls))


def _recursion_guards() -> set[types.CodeType]:
    """The code of the wrapper that dataclasses put around `__repr__`, under both names it has had."""
    makers = (getattr(dataclasses, "_recursive_repr", None), reprlib.recursive_repr())
    return {maker(repr).__code__ for maker in makers if maker is not None}


def _repr_wrapper(t: Tracer, function: Value, args: Args, kwargs: Kwargs) -> Value:
    """An object made while tracing has no id; one that contains itself would be traced without end, which breaks the graph."""
    inner = dict(zip(function.real().__code__.co_freevars, function.real().__closure__, strict=True))
    return t.call(t.wrap_pinned(inner["user_function"].cell_contents), args, kwargs)


for _code in _recursion_guards():
    replaces_wrapper(_code)(_repr_wrapper)


@replaces(inspect.signature)
def signature(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    target = args[0].function if isinstance(args[0], MethodValue) else args[0]
    if kwargs or not isinstance(target, FunctionValue):
        raise GraphBreak("unsupported-call", "inspect.signature of something that is no plain function")
    found = inspect.signature(target.function)
    if target is not args[0]:
        found = found.replace(parameters=list(found.parameters.values())[1:])
    return t.from_python(found)


@replaces(functools.partial)
def make_partial(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    inner = args[0]
    if isinstance(inner, PartialValue):
        return PartialValue(inner.function, [*inner.args, *args[1:]], {**inner.kwargs, **kwargs})
    return PartialValue(inner, list(args[1:]), dict(kwargs))


@replaces(functools.reduce)
def reduce(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    items = list(t.iterate_all(args[1]))
    total = args[2] if len(args) > 2 else items.pop(0)
    for item in items:
        total = t.call(args[0], [total, item], {})
    return total


@replaces(functools.update_wrapper)
def update_wrapper(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    wrapper, wrapped = args[0], args[1] if len(args) > 1 else kwargs["wrapped"]
    for name in functools.WRAPPER_ASSIGNMENTS:
        if name in ("__name__", "__qualname__"):
            wrapper.set_attribute(t, name, t.get_attribute(wrapped, name))
    wrapper.set_attribute(t, "__wrapped__", wrapped)
    return wrapper


@replaces(collections.namedtuple)
def named_tuple(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return t.fold(collections.namedtuple, args, kwargs)


@replaces(types.SimpleNamespace)
def simple_namespace(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    made = ObjectValue(types.SimpleNamespace)
    for mapping in args:
        made.attrs.update({t.concrete(key): value for key, value in t.mapping_items(mapping)})
    made.attrs.update(kwargs)
    return made


@replaces(collections.OrderedDict)
def ordered_dict(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    made = DictValue({}, collections.OrderedDict)
    made.m_update(t, *args, **kwargs)
    return made


@replaces(collections.defaultdict)
def default_dict(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    made = DictValue({}, collections.defaultdict, default=args[0] if args else ConstantValue(None))
    made.m_update(t, *args[1:], **kwargs)
    return made


@replaces(collections.deque)
def deque(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    limit = args[1] if len(args) > 1 else kwargs.get("maxlen")
    made = ListValue([], collections.deque, maxlen=None if limit is None else t.concrete(limit))
    if args:
        made.m_extend(t, args[0])
    return made


_SYMBOLIC_MATH = {
    math.sqrt: getattr(torch, "_sym_sqrt", None),
    math.ceil: math.ceil,
    math.floor: math.floor,
    math.trunc: math.trunc,
}


def _math(function: Any) -> None:
    def replacement(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        if any(isinstance(a, TensorValue) for a in args):
            raise GraphBreak("data-dependent-value", f"math.{function.__name__} of a tensor")
        if any(isinstance(a, SymbolicValue) for a in args):
            symbolic = _SYMBOLIC_MATH.get(function)
            if symbolic is not None:
                return t._symbolic(symbolic, args)
            return t.computed(function, args, kwargs)
        if function is math.prod:
            total = kwargs.get("start", ConstantValue(1))
            for item in t.iterate_all(args[0]):
                total = t.binary("*", total, item)
            return total
        return t.fold(function, args, kwargs)

    replaces(function)(replacement)


for _name in dir(math):
    if callable(getattr(math, _name)) and not _name.startswith("_"):
        _math(getattr(math, _name))


@replaces(copy.copy)
def shallow_copy(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    value = args[0]
    if value.is_constant() or isinstance(value, (TupleValue, SymbolicValue)):
        return value
    if isinstance(value, (ListValue, DictValue, SetValue)):
        return value.call_method(t, "copy", [], {})
    if (
        isinstance(value, ObjectValue)
        and value.storage is None
        and value.object is not None
        and not hasattr(value.cls, "__copy__")
    ):
        return t.call(t.wrap_pinned(_copy_object), [value], {})
    raise GraphBreak("unsupported-call", "copy.copy of an object")


def _copy_object(obj: Any) -> Any:
    made = object.__new__(type(obj))
    for name, value in obj.__dict__.items():
        object.__setattr__(made, name, value)
    return made


@replaces(copy.deepcopy)
def deep_copy(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return _deep_copy(t, t.realise(args[0]))


def _deep_copy(t: Tracer, value: Value) -> Value:
    value = t.realise(value)
    if value.is_constant() or isinstance(value, SymbolicValue):
        return value
    if isinstance(value, DictValue):
        return DictValue(
            {k: (key, _deep_copy(t, v)) for k, (key, v) in value.items.items()}, value.cls, default=value.default
        )
    if isinstance(value, SequenceValue):
        return t.sequence([_deep_copy(t, item) for item in value.items], value.cls)
    if isinstance(value, (FunctionValue, ClassValue)):
        return value
    if isinstance(value, ObjectValue) and value.storage is None and _plainly_copied(value.cls):
        made = ObjectValue(value.cls)
        for key, item in t.mapping_items(t.get_attribute(value, "__dict__")):
            made.attrs[t.concrete(key)] = _deep_copy(t, item)
        return made
    raise GraphBreak("unsupported-call", "copy.deepcopy of an object")


def _plainly_copied(cls: type) -> bool:
    """Whether copying instances of a class means copying their `__dict__`."""
    plain = all(
        getattr(cls, name, None) is getattr(object, name, None)
        for name in ("__deepcopy__", "__reduce__", "__reduce_ex__", "__getstate__", "__setstate__")
    )
    return (
        plain
        and not issubclass(cls, torch.nn.Module)
        and not any("__slots__" in vars(base) for base in cls.__mro__ if base is not object)
    )


_LOG_METHODS = tuple(
    getattr(logging.Logger, name) for name in ("debug", "info", "warning", "error", "critical", "exception", "log")
)


def _log_method(method: Any) -> None:
    def replacement(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        if kwargs or args[0].real() is MISSING or not all(t.is_foldable(arg) for arg in args[1:]):
            raise GraphBreak("input-output", "a message that is not constant is logged")
        return call_later(t, t.wrap_pinned(method), [t.wrap_pinned(args[0].real()), *args[1:]])

    replaces(method)(replacement)


for _method in _LOG_METHODS:
    _log_method(_method)


@replaces(warnings.warn)
def warn(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if (
        all(t.is_foldable(arg) for arg in args)
        and set(kwargs) <= {"category", "stacklevel"}
        and all(t.is_foldable(v) for v in kwargs.values())
    ):
        category = args[1] if len(args) > 1 else kwargs.get("category", ConstantValue(None))
        return call_later(t, t.wrap_pinned(warnings.warn), [args[0], category])
    raise GraphBreak("input-output", "a warning that is not constant")


@replaces(warnings.catch_warnings)
def catch_warnings(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    raise GraphBreak("unsupported-call", "warnings.catch_warnings")
