"""Texts of values: `str`, `repr`, `ascii`, `format`.

In: values. Out: a value for the text, which a class may write itself, or a break.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..class_names import type_name
from ..signals import GraphBreak
from ..values.base import Value
from ..values.builtins import ClassValue
from ..values.constants import ConstantValue
from ..values.objects import ExceptionValue, ObjectValue, new_exception
from ..values.symbolic import SymbolicValue
from ..values.tensor import TensorValue
from . import enum_members
from .part import Part

if TYPE_CHECKING:
    from collections.abc import Callable


def _escaped(text: str) -> str:
    return text.encode("ascii", "backslashreplace").decode("ascii")


class Texts(Part):
    """Texts of values."""

    def to_text(self, value: Value, how: str) -> Value:
        """`str`, `repr` or `ascii` of a value."""
        functions: dict[str, Callable[..., Any]] = {"str": str, "repr": repr, "ascii": ascii}
        function = functions[how]
        if isinstance(value, SymbolicValue):
            return ConstantValue(function(value.concrete(self.t)))
        if isinstance(value, ClassValue):
            for name in ("__module__", "__qualname__"):  # guarded: what the text is made of can be assigned
                if any(isinstance(vars(base).get(name), property) for base in type(value.object).__mro__):
                    raise GraphBreak("unsupported-call", f"{how}() of a class whose metaclass has another {name}")
                self.t.attributes.get_attribute(value, name)
        if enum_members.is_member(value):
            name = "__str__" if how == "str" else "__repr__"
            text = enum_members.to_text(self.t, value, name, [])
            if text is not None:
                text = self._text_of(name, text)
                return text if how != "ascii" else self.t.folder.fold(_escaped, [text], {})
        if isinstance(value, ObjectValue):
            for name in (f"__{how}__", "__repr__"):
                method = value.special(self.t, name)
                if method is not None:
                    return self._text_of(name, self.t.caller.call(method, [], {}))
            arguments = getattr(value, "arguments", None)
            if isinstance(value, ExceptionValue) and value.has_own_fields():
                raise GraphBreak("unsupported-call", f"{how}() of an exception with fields of its own")
            if arguments is not None and how == "str":
                if len(arguments) == 1 and not issubclass(value.cls, KeyError):
                    return self.to_text(arguments[0].realise(self.t), "str")
                return self.t.folder.fold(lambda *parts: str(new_exception(value.cls, parts)), arguments, {})
            if arguments is not None:
                return self.t.folder.fold(lambda *parts: repr(new_exception(value.cls, parts)), arguments, {})
        return self.t.folder.fold(function, [value], {})

    def format(self, value: Value, spec: Value) -> Value:
        """`format(value, spec)`."""
        if isinstance(value, SymbolicValue):
            value = ConstantValue(value.concrete(self.t))
        if isinstance(value, TensorValue) and value.number is not None and not value.fake.ndim:
            self.t.members.refuse_patched(value, "__format__")
            value = ConstantValue(value.number)
        if isinstance(value, ObjectValue):
            method = value.special(self.t, "__format__")
            if method is not None:
                return self._text_of("__format__", self.t.caller.call(method, [spec], {}))
        if enum_members.is_member(value):
            text = enum_members.to_text(self.t, value, "__format__", [spec])
            if text is not None:
                return self._text_of("__format__", text)
        if isinstance(value, (ObjectValue, ClassValue)) and spec.is_constant() and spec.constant() == "":
            return self.to_text(value, "str")
        return self.t.folder.fold(format, [value, spec], {})

    def _text_of(self, name: str, made: Value) -> Value:
        """What a `__str__`, `__repr__` or `__format__` gave, which has to be a text."""
        kind = made.python_type()
        if issubclass(kind, str):
            return made
        if name == "__format__":
            raise self.t.exceptions.raised(TypeError(f"__format__ must return a str, not {type_name(kind)}"))
        raise self.t.exceptions.raised(TypeError(f"{name} returned non-string (type {type_name(kind)})"))
