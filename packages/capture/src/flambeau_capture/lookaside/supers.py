"""`super()`.

In: its calls met while tracing. Out: a value that finds attributes after a class in the method resolution order.
"""

from __future__ import annotations

import builtins
import types
from typing import TYPE_CHECKING, Any

from ..replacements import replaces
from ..signals import GraphBreak
from ..values.base import MISSING, Value
from ..values.bound import BoundBuiltin
from ..values.builtins import ClassValue
from ..values.functions import MethodValue

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..values.base import Tracer

    Args = Sequence[Value]
    Kwargs = Mapping[str, Value]


class SuperValue(Value):
    """`super(cls, owner)`."""

    __slots__ = ("cls", "owner")

    def __init__(self, cls: Any, owner: Value) -> None:
        super().__init__()
        self.cls = cls
        self.owner = owner

    def python_type(self) -> type:
        return super

    def rebuild(self, e: Any) -> None:
        e.pinned(super)
        e.pinned(self.cls)
        e.value(self.owner)
        e.call(2)

    def get_attribute(self, t: Tracer, name: str) -> Value:
        # In a method of a metaclass the owner is a class too, as an instance.
        start = self.owner.python_type()
        if is_class := isinstance(self.owner, ClassValue) and issubclass(self.owner.object, self.cls):
            start = self.owner.object
        found, where = t.members.class_member(start, name, after=self.cls)
        if found is MISSING:
            raise t.exceptions.raised(AttributeError(f"'super' object has no attribute '{name}'"))
        if is_class:
            if isinstance(found, classmethod):
                return MethodValue(t.wrapper.wrap_pinned(found.__func__), self.owner)
            if isinstance(found, types.ClassMethodDescriptorType):
                if name != "__init_subclass__":
                    raise GraphBreak("unsupported-attribute", f"{name} of super()")
                return BoundBuiltin(self.owner, name)
            return t.wrapper.wrap_pinned(getattr(found, "__func__", found))
        if isinstance(found, (types.WrapperDescriptorType, types.MethodDescriptorType)):
            return NativeSuperMethod(self.owner, found)
        return t.attributes.bind_class_attribute(self.owner, start, name, found, where)


class NativeSuperMethod(Value):
    """A native method found through `super()`."""

    __slots__ = ("function", "owner")

    def __init__(self, owner: Value, function: Any) -> None:
        super().__init__()
        self.owner = owner
        self.function = function

    def python_type(self) -> type:
        return type(self.function)

    def call(self, t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        return t.caller.call_descriptor(self.function, [self.owner, *args], kwargs)

    def rebuild(self, e: Any) -> None:
        e.pinned(self.function.__get__)
        e.value(self.owner)
        e.call(1)


def _is_owner(value: Value, cls: type) -> bool:
    return (isinstance(value, ClassValue) and issubclass(value.object, cls)) or issubclass(value.python_type(), cls)


@replaces(builtins.super)
def make_super(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if args:
        cls = t.folder.concrete(args[0])
        if len(args) == 1 or not isinstance(cls, type) or not _is_owner(args[1], cls):
            raise GraphBreak("unsupported-call", "super() of something else than a class and its instance")
        return SuperValue(cls, args[1])
    frame = t.frames.frame
    if "__class__" not in frame.cells:
        raise t.exceptions.raised(RuntimeError("super(): __class__ cell not found"))
    contents = frame.cells["__class__"].contents
    assert contents is not None
    first = frame.code.co_varnames[0]
    owner = frame.locals.get(first) or (frame.cells[first].contents if first in frame.cells else None)
    if owner is None:
        raise t.exceptions.raised(RuntimeError("super(): no arguments"))
    cls, owner = contents.realise(t).real(), owner.realise(t)
    if not _is_owner(owner, cls):
        raise GraphBreak("unsupported-call", "super() in what is called with something else than an instance")
    return SuperValue(cls, owner)
