"""Callables written in C, classes and Python modules.

In: the real object. Out: calling goes through the lookaside table, then the torch policy, then constant folding, else a break.
"""

from __future__ import annotations

import types
from operator import getitem
from typing import TYPE_CHECKING, Any

from ..class_names import class_qualname
from ..signals import GraphBreak
from .base import MISSING, Value
from .constants import ConstantValue
from .modules import module_attribute
from .trust import is_trusted_namespace

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..sources.source import Source
    from .base import Tracer


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
        return t.attributes.attribute_of_object(self, self.object, name)


class BuiltinValue(RealValue):
    """A function, method descriptor or other callable written in C."""

    __slots__ = ()

    def describe(self) -> str:
        return str(getattr(self.object, "__qualname__", None) or getattr(self.object, "__name__", self.object))

    def call(self, t: Tracer, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        return t.caller.call_builtin(self, self.object, args, kwargs)


class PythonModuleValue(RealValue):
    """An imported module."""

    __slots__ = ()

    def describe(self) -> str:
        return f"module {getattr(self.object, '__name__', '?')}"

    def get_attribute(self, t: Tracer, name: str) -> Value:
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
        return t.caller.construct(self, args, kwargs)

    def get_attribute(self, t: Tracer, name: str) -> Value:
        if name in self.attrs:
            return self.attrs[name]
        return t.attributes.class_attribute(self, name)

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
        given, owner = t.members.class_member(self.object, "__class_getitem__")
        is_native = given is MISSING or isinstance(getattr(given, "__func__", given), type)
        if not is_native and not is_trusted_namespace(owner):
            raise GraphBreak(
                "unsupported-operation", f"subscripts of {self.describe()}, which has its own __class_getitem__"
            )
        return t.folder.fold(getitem, [self, key], {})

    def iterate(self, t: Tracer) -> Value:
        import enum

        if issubclass(self.object, enum.Enum):
            return t.wrapper.sequence([ConstantValue(member) for member in self.object], list).iterate(t)
        return super().iterate(t)
