"""Containers of values as trees: what torch's pytrees are to objects.

In: a value. Out: its leaves in order, and the `Structure` that puts leaves back. Containers are those that torch's pytrees take apart by
themselves: tuples, named ones too, lists, dicts and `OrderedDict`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import field, frozen

from ..class_names import type_name
from ..library import collections
from ..signals import GraphBreak
from .mappings import DictValue
from .sequences import ListValue, TupleValue, is_plain_named

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .base import Tracer, Value

_OTHERS = (collections.deque, collections.defaultdict)
"""Which torch's pytrees take apart as well."""


@frozen
class Structure:
    """A container of `parts`; the class of a leaf is None. Structures are equal where their containers and keys are."""

    cls: type | None = None
    parts: tuple[Structure, ...] = ()
    keys: tuple[Any, ...] = ()
    key_values: tuple[Value, ...] = field(default=(), eq=False)

    @property
    def count(self) -> int:
        """How many leaves there are."""
        return 1 if self.cls is None else sum(part.count for part in self.parts)

    def filled(self, leaves: Sequence[Value]) -> Value:
        """The containers anew, around these leaves."""
        return self._next(iter(leaves))

    def _next(self, leaves: Iterator[Value]) -> Value:
        if self.cls is None:
            return next(leaves)
        items = [part._next(leaves) for part in self.parts]
        if self.cls is list:
            return ListValue(items)
        if self.key_values or issubclass(self.cls, dict):
            pairs = zip(self.keys, self.key_values, items, strict=True)
            return DictValue({key: (known, item) for key, known, item in pairs}, self.cls)
        return TupleValue(items, self.cls)


def flattened(t: Tracer, value: Value) -> tuple[list[Value], Structure]:
    """The leaves of a value, and how they stand; breaks the graph at containers that are none of ours."""
    leaves: list[Value] = []
    return leaves, _structure(t, value.realise(t), leaves)


def _structure(t: Tracer, value: Value, leaves: list[Value]) -> Structure:
    cls = value.python_type()
    if cls in (tuple, list) or is_plain_named(cls) or cls.__module__ == "torch.return_types":
        parts = tuple(_structure(t, item.realise(t), leaves) for item in t.operators.iterate_all(value))
        return Structure(cls, parts)
    if cls in (dict, collections.OrderedDict):
        pairs = list(t.operators.mapping_items(value))
        parts = tuple(_structure(t, item.realise(t), leaves) for _, item in pairs)
        return Structure(cls, parts, tuple(t.wrapper.to_python(key) for key, _ in pairs), tuple(k for k, _ in pairs))
    if issubclass(cls, (tuple, list, dict, *_OTHERS)):
        raise GraphBreak("unsupported-argument", f"a {type_name(cls)} among what an operator takes apart")
    leaves.append(value)
    return Structure()
