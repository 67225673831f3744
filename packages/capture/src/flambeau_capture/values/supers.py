"""`super` objects.

In: their class and owner, as a call of `super` or an object of the program has them. Out: a value that finds attributes after a class in the method
resolution order.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

from ..signals import GraphBreak
from ..sources.source import Attribute, Source
from .base import MISSING, Value
from .bound import BoundBuiltin
from .builtins import ClassValue
from .functions import MethodValue

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .base import Tracer

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


def wrap_super(t: Tracer, obj: Any, source: Source) -> Value:
    """A `super` object that was made before the frame: on the stack where a graph ended, or kept by the program."""
    # `obj.__self__` looks in the classes first, which may have the name.
    cls, owner = (vars(super)[name].__get__(obj) for name in ("__thisclass__", "__self__"))
    if owner is None:
        raise GraphBreak("unsupported-argument", "super() without an instance")
    if obj.__self__ is not owner or obj.__thisclass__ is not cls:
        raise GraphBreak("unsupported-argument", "super() of a class that has `__self__` or `__thisclass__`")
    t.guards.type_is(source, super)
    t.guards.identity(Attribute(source, "__thisclass__"), cls)
    return SuperValue(cls, t.wrapper.wrap(owner, Attribute(source, "__self__")))
