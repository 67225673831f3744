"""Callables written in C, classes, Python modules, and methods that a value implements itself.

In: the real object. Out: calling goes through the lookaside table, then the torch policy, then constant folding, else a break.
"""

from __future__ import annotations

import types
from operator import getitem
from typing import TYPE_CHECKING, Any

from ..class_names import class_name, class_qualname
from ..interp.signals import GraphBreak
from ..interp.trust import is_trusted_namespace
from .base import MISSING, Value
from .constants import ConstantValue

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..interp.tracer import Tracer
    from ..sources.source import Source


class BoundBuiltin(Value):
    """`owner.name` where the owner's class implements the method natively."""

    __slots__ = ("name", "owner")

    def __init__(self, owner: Value, name: str) -> None:
        super().__init__()
        self.owner = owner
        self.name = name

    def python_type(self) -> type:
        return types.BuiltinMethodType

    def describe(self) -> str:
        return f"{class_name(self.owner.python_type())}.{self.name}"

    def truth(self, t: Tracer) -> bool:
        return True

    def call(self, t: Tracer, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        return t.call_bound(self.owner, self.name, args, kwargs)

    def rebuild(self, e: Any) -> None:
        e.value(self.owner)
        e.attr(self.name)

    def get_attribute(self, t: Tracer, name: str) -> Value:
        if name == "__self__":
            return self.owner
        if name == "__name__":
            return ConstantValue(self.name)
        return super().get_attribute(t, name)


class LoadedMethod(Value):
    """The function of `owner.name(...)`: Python calls it with the owner, and words errors by the class that has it; a bound method's name the owner's."""

    __slots__ = ("function",)

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def python_type(self) -> type:
        return type(self.function)

    def describe(self) -> str:
        return str(self.function.__qualname__)

    def call(self, t: Tracer, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        return t.call_bound(args[0], self.function.__name__, args[1:], kwargs)

    def rebuild(self, e: Any) -> None:
        e.pinned(self.function)


class RealValue(Value):
    """Abstract: an object that is known by identity."""

    __slots__ = ("object",)

    def __init__(self, object: Any, source: Source | None) -> None:
        super().__init__(source)
        self.object = object

    def python_type(self) -> type:
        return type(self.object)

    def real(self) -> Any:
        return self.object

    def truth(self, t: Tracer) -> bool:
        return True

    def rebuild(self, e: Any) -> None:
        e.pinned(self.object) if self.source is None else e.source(self.source)

    def get_attribute(self, t: Tracer, name: str) -> Value:
        return t.attribute_of_object(self, self.object, name)


class BuiltinValue(RealValue):
    """A function, method descriptor or other callable written in C."""

    __slots__ = ()

    def describe(self) -> str:
        return str(getattr(self.object, "__qualname__", None) or getattr(self.object, "__name__", self.object))

    def call(self, t: Tracer, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        return t.call_builtin(self, self.object, args, kwargs)


class PythonModuleValue(RealValue):
    """An imported module."""

    __slots__ = ()

    def describe(self) -> str:
        return f"module {getattr(self.object, '__name__', '?')}"

    def get_attribute(self, t: Tracer, name: str) -> Value:
        from ..interp.modules import module_attribute

        return module_attribute(t, self, name)


_IMMUTABLE = 1 << 8
"""The flag of classes whose attributes cannot be set."""


class ClassValue(RealValue):
    """A class."""

    __slots__ = ("attrs",)

    def __init__(self, object: Any, source: Source | None) -> None:
        super().__init__(object, source)
        self.attrs: dict[str, Value] = {}

    def describe(self) -> str:
        return f"class {class_qualname(self.object)}"

    def has_own_metaclass(self) -> bool:
        """Whether what operators and functions do with the class may be the program's code, which reads what it likes."""
        return not is_trusted_namespace(type(self.object))

    def truth(self, t: Tracer) -> bool:
        if self.has_own_metaclass() and not {"__bool__", "__len__"}.isdisjoint(dir(type(self.object))):
            raise GraphBreak("unsupported-operation", f"the truth of {self.describe()}, whose metaclass decides")
        return True

    def call(self, t: Tracer, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        return t.construct(self, args, kwargs)

    def get_attribute(self, t: Tracer, name: str) -> Value:
        if name in self.attrs:
            return self.attrs[name]
        return t.class_attribute(self, name)

    def set_attribute(self, t: Tracer, name: str, value: Value) -> None:
        if (
            name.startswith("__")
            or self.object.__flags__ & _IMMUTABLE
            or isinstance(type(self.object).__setattr__, types.FunctionType)
        ):
            raise GraphBreak("unsupported-store", f"storing {name!r} of {self.describe()}")
        t.heap.store_attribute(self, name, value, plain=False)
        self.attrs[name] = value

    def get_item(self, t: Tracer, key: Value) -> Value:
        given, owner = t.class_member(self.object, "__class_getitem__")
        is_native = given is MISSING or isinstance(getattr(given, "__func__", given), type)
        if not is_native and not is_trusted_namespace(owner):
            raise GraphBreak(
                "unsupported-operation", f"subscripts of {self.describe()}, which has its own __class_getitem__"
            )
        return t.fold(getitem, [self, key], {})

    def iterate(self, t: Tracer) -> Value:
        import enum

        if issubclass(self.object, enum.Enum):
            return t.sequence([ConstantValue(member) for member in self.object], list).iterate(t)
        return super().iterate(t)
