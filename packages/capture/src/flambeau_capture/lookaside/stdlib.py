"""functools, itertools, collections, math, dataclasses.

In: calls of standard library functions that are written in C or whose Python body is not worth tracing. Out: the same on values.
"""

from __future__ import annotations

import random
import reprlib
import types
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from ..library import collections, dataclasses, functools, inspect, itertools, math
from ..replacements import replaces, replaces_wrapper
from ..signals import GraphBreak, TracedRaise
from ..sources.source import Pinned
from ..values.base import Value
from ..values.builtins import ClassValue
from ..values.constants import ConstantValue
from ..values.functions import ClosureValue, FunctionValue, MethodValue, PartialValue
from ..values.mappings import DictValue
from ..values.objects import ObjectValue
from ..values.sequences import ListValue
from ..values.symbolic import SymbolicValue
from ..values.tensor import TensorValue
from ..values.trust import is_trusted_namespace
from .builtins import callable_value
from .containers import fill_dict
from .conversions import float_of_object

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..values.base import Tracer

    Args = Sequence[Value]
    Kwargs = Mapping[str, Value]


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
        # Python's error is raised while it handles another one.
        raise GraphBreak("unsupported-call", f"dataclasses.fields() of {args[0].describe()}")
    return t.wrapper.sequence([t.wrapper.wrap_pinned(found) for found in dataclasses.fields(cls)], tuple)


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
    return t.caller.call(t.wrapper.wrap_pinned(inner["user_function"].cell_contents), args, kwargs)


for _code in _recursion_guards():
    replaces_wrapper(_code)(_repr_wrapper)


@replaces(inspect.signature)
def signature(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    target = args[0].function if isinstance(args[0], MethodValue) else args[0]
    if kwargs or not isinstance(target, FunctionValue):
        raise GraphBreak("unsupported-call", "inspect.signature of something that is no plain function")
    found = inspect.signature(target.function)
    if not is_trusted_namespace(target.function):
        t.guards.holds(
            target.source or Pinned(target.function), partial(_has_signature, found), f"the signature {found}"
        )
    if target is not args[0]:
        found = found.replace(parameters=list(found.parameters.values())[1:])
    return t.wrapper.from_python(found)


def _has_signature(expected: inspect.Signature, function: Any) -> bool:
    """By the very objects: defaults may be tensors, which are not equal or different."""
    found = inspect.signature(function)
    pairs = itertools.zip_longest(expected.parameters.values(), found.parameters.values())
    same = (
        a and b and a.name == b.name and a.kind is b.kind and a.default is b.default and a.annotation is b.annotation
        for a, b in pairs
    )
    return expected.return_annotation is found.return_annotation and all(same)


@replaces(functools.partial)
def make_partial(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    inner = args[0]
    if not callable_value(t, inner):
        t.folder.real_error(functools.partial, [ConstantValue(0)], {})
    if isinstance(inner, PartialValue):
        return PartialValue(inner.function, [*inner.args, *args[1:]], {**inner.kwargs, **kwargs})
    return PartialValue(inner, list(args[1:]), dict(kwargs))


@replaces(functools.reduce)
def reduce(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    try:
        items = args[1].realise(t).iterate(t)
    except TracedRaise as error:
        if issubclass(error.value.python_type(), TypeError):
            t.folder.real_error(functools.reduce, [t.wrapper.wrap_pinned(max), ConstantValue(0)], {})
        raise
    total = args[2] if len(args) > 2 else items.next(t)
    if total is None:
        t.folder.real_error(functools.reduce, [t.wrapper.wrap_pinned(max), t.wrapper.sequence([], tuple)], {})
    while (item := items.next(t)) is not None:
        total = t.caller.call(args[0], [total, item.realise(t)], {})
    return total


@replaces(functools.update_wrapper)
def update_wrapper(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    wrapper, wrapped, *tables = args
    updated = t.folder.concrete(tables[1]) if len(tables) > 1 else functools.WRAPPER_UPDATES
    if not isinstance(wrapper, ClosureValue | FunctionValue) or updated != functools.WRAPPER_UPDATES:
        raise GraphBreak("unsupported-call", "functools.update_wrapper of something that is no function")
    for name in map(t.folder.concrete, t.operators.iterate_all(tables[0])) if tables else functools.WRAPPER_ASSIGNMENTS:
        if type(name) is not str:
            raise GraphBreak("unsupported-call", "the name of an attribute is no string")
        try:
            found = t.attributes.get_attribute(wrapped, name)
        except TracedRaise as error:
            if not issubclass(error.value.python_type(), AttributeError):
                raise
            continue
        wrapper.set_attribute(t, name, found)
    if isinstance(wrapped, FunctionValue | ClosureValue):
        for key, value in t.operators.mapping_items(t.attributes.get_attribute(wrapped, "__dict__")):
            wrapper.set_attribute(t, t.folder.concrete(key), value)
    elif getattr(wrapped.python_type(), "__dictoffset__", 0):
        raise GraphBreak("unsupported-call", "functools.update_wrapper by something that is no function")
    wrapper.set_attribute(t, "__wrapped__", wrapped)
    return wrapper


@replaces(collections.namedtuple)
def named_tuple(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    raise GraphBreak("unsupported-call", "namedtuple() makes a class, another one at each call")


@replaces(types.MethodType)
def make_method(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """A function bound to an object by hand."""
    function, owner = args
    if not callable_value(t, function) or owner.python_type() is types.NoneType:
        raise GraphBreak("unsupported-call", "types.MethodType of what it does not take")
    return MethodValue(function, owner)


@replaces(types.SimpleNamespace)
def simple_namespace(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    made = ObjectValue(types.SimpleNamespace)
    for mapping in args:
        made.attrs.update({t.folder.concrete(key): value for key, value in t.operators.mapping_items(mapping)})
    made.attrs.update(kwargs)
    return made


@replaces(collections.OrderedDict)
def ordered_dict(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return fill_dict(t, DictValue({}, collections.OrderedDict), args, kwargs)


@replaces(collections.defaultdict)
def default_dict(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    default = args[0] if args else ConstantValue(None)
    if not callable_value(t, default) and not (default.is_constant() and default.constant() is None):
        t.folder.real_error(collections.defaultdict, [ConstantValue(0)], {})
    return fill_dict(t, DictValue({}, collections.defaultdict, default=default), args[1:], kwargs)


_COUNT_ELEMENTS: Any = getattr(collections, "_count_elements")  # noqa: B009 - no stub has it


@replaces(_COUNT_ELEMENTS)
def count_elements(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """What fills a `collections.Counter`."""
    return t.caller.call(t.wrapper.wrap_pinned(_counted), args, kwargs)


def _counted(counts: Any, elements: Any) -> None:
    get = counts.get
    for element in elements:
        counts[element] = get(element, 0) + 1


@replaces(collections.deque)
def deque(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    limit = t.folder.concrete(args[1]) if len(args) > 1 else None
    if limit is not None and (not isinstance(limit, int) or limit < 0):
        t.folder.real_error(collections.deque, [t.wrapper.sequence([], tuple), args[1]], {})
    made = ListValue([], collections.deque, maxlen=limit)
    if args:
        made.m_extend(t, args[0])
    return made


_SYMBOLIC_MATH = {
    math.sqrt: getattr(torch, "_sym_sqrt", None),
    math.ceil: math.ceil,
    math.floor: math.floor,
    math.trunc: math.trunc,
}
_ASKS = {
    **dict.fromkeys((
        math.sqrt, math.exp, math.log, math.log2, math.log10, math.log1p, math.expm1, math.sin, math.cos, math.tan, math.sinh, math.cosh, math.tanh,
        math.asin, math.acos, math.atan, math.fabs, math.degrees, math.radians, math.isnan, math.isinf, math.isfinite, math.erf,
    ), ""),
    math.floor: "__floor__", math.ceil: "__ceil__",
}  # fmt: skip
"""Functions of one float, and the special method of an object that they ask before they take it for one."""


def _math(function: Any) -> None:
    def replacement(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        if any(isinstance(a, TensorValue) for a in args):
            raise GraphBreak("data-dependent-value", f"math.{function.__name__} of a tensor")
        if len(args) == 1 and not kwargs and isinstance(args[0], ObjectValue) and function in _ASKS:
            asked = args[0].special(t, _ASKS[function]) if _ASKS[function] else None
            if asked is not None:
                return t.caller.call(asked, [], {})
            found = float_of_object(t, args[0], "must be real number, not {}")
            args = args if found is None else [found]
        if any(isinstance(a, SymbolicValue) for a in args):
            symbolic = _SYMBOLIC_MATH.get(function)
            if symbolic is not None:
                return t.arithmetic.symbolic(symbolic, args)
            return t.arithmetic.computed(function, args, kwargs)
        if function is math.prod:
            total = kwargs.get("start", ConstantValue(1))
            for item in t.operators.iterate_all(args[0]):
                total = t.operators.binary("*", total, item)
            return total
        return t.folder.fold(function, args, kwargs)

    replaces(function)(replacement)


for _name in dir(math):
    if callable(getattr(math, _name)) and not _name.startswith("_"):
        _math(getattr(math, _name))


@replaces(types.MappingProxyType)
def make_proxy(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """It shows the dict itself, which may change."""
    raise GraphBreak("unsupported-call", "a mappingproxy is made")
