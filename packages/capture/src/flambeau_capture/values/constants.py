"""`ConstantValue`: an immutable object whose value is known (and guarded) while tracing.

In: the object. Out: a value that folds: attributes, methods, operators and truth are computed for real.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any

import torch

from ..class_names import class_name, objects_have
from ..constant_objects import MADE_ANEW, ONE_OF_EACH, PLAIN_TYPES, is_annotation
from ..library import math
from ..signals import GraphBreak
from ..sources.source import Item
from .base import Value
from .bound import BoundBuiltin
from .iterators import SequenceIterator

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..sources.source import Source
    from .base import Tracer

#: Types that enums are mixed with, and what makes of a member an object of just that type.
_OF_AN_ENUM: tuple[tuple[type, Any], ...] = ((int, int.__int__), (float, float.__float__), (str, str.__str__))


def _is_one_of_many(obj: Any) -> bool:
    """Whether the one that a call brings has to be given back: a guard tells what it is equal to."""
    kind = type(obj)
    return kind in MADE_ANEW and not (kind is int and obj in ONE_OF_EACH)


def plain(constant: Any) -> Any:
    """A constant as a graph's code writes it, by a literal: a member of an enum as the number or text that it also is."""
    if type(constant) is tuple:
        return tuple(map(plain, constant))
    if type(constant) is complex and not all(map(_is_told_by_a_sum, (constant.real, constant.imag))):
        raise GraphBreak("unsupported-argument", f"the complex number {constant!r}, for which there is no literal")
    if isinstance(constant, enum.Enum):
        for kind, convert in _OF_AN_ENUM:
            if isinstance(constant, kind):
                return convert(constant)
    return constant


def _is_told_by_a_sum(part: float) -> bool:
    """Whether `real + imag * 1j` gives a complex number this part again."""
    return math.isfinite(part) and (part != 0 or math.copysign(1, part) > 0)


class ConstantValue(Value):
    """A known immutable object."""

    __slots__ = ("value",)

    def __init__(self, value: Any, source: Source | None = None) -> None:
        super().__init__(source)
        self.value = value

    def python_type(self) -> type:
        return type(self.value)

    def is_constant(self) -> bool:
        return True

    def constant(self) -> Any:
        return self.value

    def real(self) -> Any:
        return self.value

    def rebuild(self, e: Any) -> None:
        if self.source is not None and _is_one_of_many(self.value):
            e.source(self.source)
        elif type(self.value) in PLAIN_TYPES - {type(NotImplemented)}:
            e.const(self.value)
        else:
            e.pinned(self.value)

    def describe(self) -> str:
        if isinstance(self.value, enum.Enum):  # the program may have written how it is shown
            return f"{class_name(type(self.value))}.{self.value._name_}"
        text = repr(self.value)
        return text if len(text) < 40 else class_name(type(self.value))

    def get_attribute(self, t: Tracer, name: str) -> Value:
        if isinstance(self.value, enum.Enum):
            t.members.class_member(type(self.value), name)  # guarded: a program may put a method there
            return t.attributes.attribute_of_object(self, self.value, name)
        try:
            found = getattr(self.value, name)
        except AttributeError as error:
            raise t.exceptions.raised(error) from None
        if getattr(found, "__self__", None) is not None and callable(found):
            return BoundBuiltin(self, name)
        if callable(found) or is_annotation(self.value):
            # A class, or something else that does not change as what has it does not.
            return t.wrapper.wrap_pinned(found)
        return t.wrapper.from_python(found)

    def call_method(self, t: Tracer, name: str, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        if name in ("__enter__", "__exit__") and isinstance(self.value, torch.device):
            return t.devices.enter_or_leave(self.value, name)
        if name == "__iter__" and not args and not kwargs:
            return self.iterate(t)
        if name == "join" and len(args) == 1 and objects_have(args[0].python_type(), "__iter__"):
            args = [
                t.wrapper.sequence(t.operators.collect(args[0].realise(t).iterate(t)), tuple)
            ]  # the iterator is asked how many there are
        return t.folder.fold_method(self, name, args, kwargs)

    def get_item(self, t: Tracer, key: Value) -> Value:
        if not t.wrapper.is_foldable(key) and type(self.value) is range:
            key = ConstantValue(t.operators.index_or_slice(key))
        elif not t.wrapper.is_foldable(key) and type(self.value) in (tuple, torch.Size):
            return t.wrapper.sequence(self.parts(t), type(self.value)).get_item(t, key)
        elif self.source is not None and type(self.value) is tuple and key.python_type() is int:
            place = t.wrapper.to_python(key)
            if -len(self.value) <= place < len(self.value):
                return self.parts(t)[place]
        return t.folder.fold(lambda obj, index: obj[index], [self, key], {})

    def contains(self, t: Tracer, item: Value) -> bool:
        return bool(t.folder.fold(lambda obj, x: x in obj, [self, item], {}).constant())

    def length(self, t: Tracer) -> Value:
        return t.folder.fold(len, [self], {})

    def truth(self, t: Tracer) -> bool:
        if self.value is NotImplemented:
            raise GraphBreak("unsupported-call", "the truth of NotImplemented warns")
        if isinstance(self.value, enum.Enum):
            return bool(t.folder.fold(bool, [self], {}).constant())
        return bool(self.value)

    def iterate(self, t: Tracer) -> Value:
        if isinstance(self.value, enum.Enum):
            t.folder.fold(list, [self], {})  # only texts and tuples that are members can, unless the program says how
        try:
            items = iter(self.value)
        except TypeError as error:
            raise t.exceptions.raised(error) from None
        if isinstance(self.value, range) and len(self.value) > t.config.unroll_limit:
            raise GraphBreak("too-long", "a range longer than the unroll limit")
        parts = [t.wrapper.from_python(item) for item in items] if type(self.value) is not tuple else self.parts(t)
        return SequenceIterator(parts, self, type(items))

    def parts(self, t: Tracer) -> list[Value]:
        """The items of a tuple, each with where it comes from: which object it is, only that tells."""
        if self.source is None or type(self.value) is not tuple:
            return [t.wrapper.from_python(item) for item in self.value]
        return [ConstantValue(item, Item(self.source, place)) for place, item in enumerate(self.value)]


NONE = ConstantValue(None)
TRUE = ConstantValue(True)
FALSE = ConstantValue(False)
ZERO = ConstantValue(0)
ONE = ConstantValue(1)
LAST = ConstantValue(-1)
