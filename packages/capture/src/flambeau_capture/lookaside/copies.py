"""`copy.copy` and `copy.deepcopy`.

In: a value, real or made while tracing. Out: a copy that the trace made, whose parts are the same or copies in their turn; constants are their own copies.
An object is copied by its `__dict__` where its class leaves that to Python.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

import torch

from ..class_names import type_name
from ..constant_objects import UNHASHABLE
from ..library import copy
from ..replacements import replaces
from ..signals import GraphBreak, TracedRaise
from ..values.base import Value
from ..values.bound import BoundBuiltin
from ..values.builtins import ClassValue
from ..values.functions import ClosureValue, FunctionValue
from ..values.mappings import DictValue
from ..values.objects import InstanceDictValue, ObjectValue
from ..values.sequences import ListValue, TupleValue
from ..values.sets import SetValue
from ..values.symbolic import SymbolicValue

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ..values.base import Tracer

    Args = Sequence[Value]
    Kwargs = Mapping[str, Value]

#: Constants that may have a method for it, or refuse.
_COPIED_FOR_REAL = (enum.Enum, *UNHASHABLE)


@replaces(copy.copy)
def shallow_copy(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    value = args[0]
    if issubclass(value.python_type(), _COPIED_FOR_REAL):
        return t.folder.fold(copy.copy, [value], {})
    if value.python_type() in (torch.Size, torch.device) or (isinstance(value, TupleValue) and value.cls is not tuple):
        raise GraphBreak("unsupported-call", f"copy.copy of a {type_name(value.python_type())} makes another one")
    if value.is_constant() or isinstance(value, (TupleValue, SymbolicValue, FunctionValue, ClosureValue, ClassValue)):
        return value
    if isinstance(value, (ListValue, SetValue)) or (isinstance(value, DictValue) and not value.is_proxy()):
        return value.call_method(t, "copy", [], {})
    if isinstance(value, ObjectValue) and value.storage is None and _plainly_copied(t, value.cls):
        _ask(t, value, "__reduce__", "__getstate__")
        return _filled(t, ObjectValue(value.cls), value, lambda item: item)
    raise GraphBreak("unsupported-call", "copy.copy of an object")


@replaces(copy.deepcopy)
def deep_copy(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if len(args) > 2 or (len(args) > 1 and not (args[1].is_constant() and args[1].constant() is None)):
        raise GraphBreak("unsupported-call", "copy.deepcopy with a memo")
    memo: dict[Value, Value] = {}
    made = _deep_copy(t, args[0], memo)
    # What is one object is copied once: at another call, objects that are two now might be one.
    sources = [value.source for value in memo if value.source is not None]
    if len(sources) > 1:
        t.guards.distinct(*sources)
    return made


def _deep_copy(t: Tracer, value: Value, memo: dict[Value, Value]) -> Value:
    """A copy; what is met twice is copied once (`memo`, by the stand-in), and a copy is there before its parts are looked at."""
    value = value.realise(t)
    if issubclass(value.python_type(), _COPIED_FOR_REAL):
        return t.folder.fold(copy.deepcopy, [value], {})
    if value.python_type() in (torch.Size, torch.device, slice, frozenset):
        raise GraphBreak("unsupported-call", f"copy.deepcopy of a {type_name(value.python_type())} makes another one")
    if value.is_constant() or isinstance(value, (SymbolicValue, FunctionValue, ClosureValue, ClassValue)):
        return value
    if value in memo:
        return memo[value]
    made: Value
    if isinstance(value, TupleValue):
        return _deep_copy_of_tuple(t, value, memo)
    if isinstance(value, ListValue):
        made = memo[value] = value.with_items([])
        made.items.extend(_deep_copy(t, item, memo) for item in list(value.items))
        return made
    if isinstance(value, DictValue) and not value.is_proxy():
        value.guard_all(t)
        made = memo[value] = DictValue({}, value.cls, default=value.default)
        for hashed, (key, item) in value.items.items():
            made.items[hashed] = (_deep_copy(t, key, memo), _deep_copy(t, item, memo))
        return made
    if isinstance(value, SetValue) and all(item.is_constant() for item in value.items.values()):
        made = memo[value] = SetValue(value.items, value.cls, table=value.table.copy())
        return made
    if isinstance(value, ObjectValue) and value.storage is None and _plainly_copied(t, value.cls):
        return _deep_copy_of_object(t, value, memo)
    raise GraphBreak("unsupported-call", "copy.deepcopy of an object")


def _deep_copy_of_object(t: Tracer, value: ObjectValue, memo: dict[Value, Value]) -> Value:
    _ask(t, value, "__deepcopy__", "__reduce_ex__", "__reduce__", "__getstate__")
    made = memo[value] = ObjectValue(value.cls)
    return _filled(t, made, value, lambda item: _deep_copy(t, item, memo))


def _filled(t: Tracer, made: ObjectValue, value: ObjectValue, part: Callable[[Value], Value]) -> ObjectValue:
    """`made`, with what the attributes of `value` become."""
    attributes = list(t.operators.mapping_items(t.attributes.plain_attribute(value, "__dict__", hook=False)))
    copied = [(t.folder.concrete(key), part(item)) for key, item in attributes]
    if copied:
        _ask(t, made, "__setstate__", "__dict__")
    made.attrs.update(copied)
    return made


def _deep_copy_of_tuple(t: Tracer, value: TupleValue, memo: dict[Value, Value]) -> Value:
    """The tuple itself where no part of it is another one afterwards."""
    items = [item.realise(t) for item in value.items]
    copies = [_deep_copy(t, item, memo) for item in items]
    if value in memo:  # it is a part of itself
        return memo[value]
    if value.cls is tuple and all(copied is item for copied, item in zip(copies, items, strict=True)):
        return value
    made = memo[value] = t.wrapper.sequence(copies, value.cls)
    return made


#: What a class has of `object` whose instances are copied by their `__dict__`: a method of its own may do anything.
_OF_OBJECT = ("__copy__", "__deepcopy__", "__reduce__", "__reduce_ex__", "__getstate__", "__setstate__", "__getnewargs__", "__getnewargs_ex__")  # fmt: skip


def _plainly_copied(t: Tracer, cls: type) -> bool:
    """Whether copying instances of a class means copying their `__dict__`."""
    for name in _OF_OBJECT:
        t.members.class_member(cls, name)
    return (
        all(getattr(cls, name, None) is getattr(object, name, None) for name in _OF_OBJECT)
        and getattr(cls, "__dictoffset__", 0) != 0
        and not issubclass(cls, torch.nn.Module | BaseException | type)
        and not any("__slots__" in vars(base) for base in cls.__mro__ if base is not object)
        and cls.__new__ is object.__new__
    )


def _ask(t: Tracer, obj: ObjectValue, *names: str) -> None:
    """Look attributes up as copying does, where the class has code of its own for that; breaks where they are not what `object` has."""
    for name in ("__getattribute__", "__getattr__"):
        t.members.class_member(obj.cls, name)
    if getattr(obj.cls, "__getattribute__", None) is vars(object)["__getattribute__"] and not hasattr(
        obj.cls, "__getattr__"
    ):
        return
    for name in names:
        try:
            found = t.attributes.get_attribute(obj, name)
        except TracedRaise as error:
            if not issubclass(error.value.python_type(), AttributeError):
                raise
            continue
        is_the_dict = isinstance(found, InstanceDictValue) and found.owner is obj
        if not is_the_dict and not (isinstance(found, BoundBuiltin) and (found.owner, found.name) == (obj, name)):
            raise GraphBreak("unsupported-call", f"copy of an object whose class answers for {name}")
