"""Constructors of Python's containers.

In: calls of `list`, `tuple`, `set`, `frozenset`, `dict`, `dict.fromkeys` and their `__new__`, met while tracing. Out: the values they make.
"""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING

from ..class_names import class_qualname, objects_have, type_name
from ..replacements import replaces
from ..signals import GraphBreak
from ..values.base import Value
from ..values.constants import ConstantValue
from ..values.mappings import DictValue
from ..values.objects import ObjectValue, native_maker
from ..values.sequences import ListValue, TupleValue
from ..values.sets import set_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..values.base import Tracer

    Args = Sequence[Value]
    Kwargs = Mapping[str, Value]


@replaces(builtins.list)
def to_list(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return ListValue(t.operators.collect(args[0]) if args else [])


@replaces(builtins.tuple)
def to_tuple(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return (
        args[0]
        if args and args[0].python_type() is tuple
        else TupleValue(t.operators.collect(args[0]) if args else [], tuple)
    )


@replaces(builtins.set)
def to_set(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return set_of(t, args[0] if args else None)


@replaces(builtins.frozenset)
def to_frozenset(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return set_of(t, args[0] if args else None, frozenset)


@replaces(builtins.dict)
def to_dict(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return fill_dict(t, DictValue({}), args, kwargs)


def fill_dict(t: Tracer, made: DictValue, args: Args, kwargs: Kwargs) -> DictValue:
    """What the constructor of a dict adds."""
    for other in args:
        if not isinstance(other, ObjectValue) and not objects_have(other.python_type(), "__iter__"):
            raise t.exceptions.raised(TypeError(f"'{type_name(other.python_type())}' object is not iterable"))
        made.m_update(t, other)
    made.m_update(t, **kwargs)
    return made


@replaces(dict.fromkeys)
def from_keys(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    made = DictValue({})
    for key in t.operators.iterate_all(args[0]):
        made.set_item(t, key, args[1] if len(args) > 1 else ConstantValue(None))
    return made


def _new(base: type) -> None:
    def replacement(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        cls = args[0].real() if args else None
        if not isinstance(cls, type) or not issubclass(cls, base) or kwargs or len(args) > (2 if base is tuple else 1):
            raise GraphBreak("unsupported-call", f"{base.__name__}.__new__ of something else than a class")
        if native_maker(cls) is not base:
            raise GraphBreak("unsupported-call", f"{base.__name__}.__new__ of {class_qualname(cls)}")
        return t.caller.make_instance(args[0], args[1:])

    replaces(base.__new__)(replacement)


for _base in (object, tuple, dict, list):
    _new(_base)
