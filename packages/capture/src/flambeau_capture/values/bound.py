"""Methods written in C, bound to a value or loaded for a call of it.

In: the value that owns the method, and its name. Out: calling it is up to the value.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

from ..class_names import class_name
from .base import MISSING, Value
from .members import mro_lookup

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .base import Tracer


#: Classes of what a class has, that make a method of an object and run nothing of the program's.
_BINDING = (types.MethodDescriptorType, types.WrapperDescriptorType, types.FunctionType, classmethod)


class BoundBuiltin(Value):
    """`owner.name` where the owner's class implements the method natively."""

    __slots__ = ("name", "owner")

    def __init__(self, owner: Value, name: str) -> None:
        super().__init__()
        self.owner = owner
        self.name = name

    def python_type(self) -> type:
        cls, real = self.owner.python_type(), self.owner.real()
        found, _ = mro_lookup(cls, self.name)
        if real is not MISSING and isinstance(found, _BINDING):
            return type(found.__get__(real, cls))
        return types.MethodWrapperType if isinstance(found, types.WrapperDescriptorType) else types.BuiltinMethodType

    def describe(self) -> str:
        return f"{class_name(self.owner.python_type())}.{self.name}"

    def truth(self, t: Tracer) -> bool:
        return True

    def call(self, t: Tracer, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        return t.caller.call_bound(self.owner, self.name, args, kwargs)

    def rebuild(self, e: Any) -> None:
        e.value(self.owner)
        e.attr(self.name)

    def get_attribute(self, t: Tracer, name: str) -> Value:
        if name == "__self__":
            return self.owner
        if name == "__name__":
            return t.wrapper.from_python(self.name)
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
        return t.caller.call_bound(args[0], self.function.__name__, args[1:], kwargs)

    def rebuild(self, e: Any) -> None:
        e.pinned(self.function)
