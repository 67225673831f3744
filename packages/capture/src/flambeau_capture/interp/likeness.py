"""Whether values may stand in the place of others: those that a call of a module was given, and those that another one is given.

In: values. Out: `Likeness`es, which keep what a value was like at the time; a `Matching` of values with those.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from attrs import field, frozen

from ..guards.paths import leads_from
from ..values.base import Value
from ..values.constants import ConstantValue
from ..values.mappings import DictValue
from ..values.sequences import ListValue, TupleValue
from ..values.tensor import TensorValue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ..sources.source import Source
    from ..values.base import Tracer


class NotAlike(Exception):
    """A value that no other one can stand for."""


@frozen(eq=False)
class TensorLikeness:
    """A tensor, and its properties."""

    value: TensorValue
    properties: tuple[Any, ...]

    @classmethod
    def of(cls, value: TensorValue) -> TensorLikeness:
        """What it is like now."""
        return cls(value, _properties(value.fake))

    def fits(self, value: TensorValue) -> bool:
        """Whether a tensor has all the properties."""
        return not value.attrs and _properties(value.fake) == self.properties


@frozen(eq=False)
class ContainerLikeness:
    """A list, tuple or dict that the trace made, with what it held.

    Attributes:
        kind: of which class, with which keys.
        made: makes one like it of other items.
    """

    kind: tuple[Any, ...]
    items: tuple[Likeness, ...]
    made: Callable[[list[Value]], Value] = field(repr=False)


Likeness = Value | TensorLikeness | ContainerLikeness
"""A value stands for itself: a constant, or what existed before the frame."""


def likeness_of(t: Tracer, value: Value, met: set[int]) -> Likeness:
    """What a value is like. Raises `NotAlike` where that cannot be kept, and for a container of the trace's own that comes up twice (in `met`)."""
    value = value.realise(t)
    if isinstance(value, TensorValue):
        if value.attrs:
            raise NotAlike
        return TensorLikeness.of(value)
    if isinstance(value, ConstantValue) or value.source is not None:
        return value
    found = _container(value)
    if found is None or id(value) in met:
        raise NotAlike
    met.add(id(value))
    kind, items, made = found
    return ContainerLikeness(kind, tuple(likeness_of(t, item, met) for item in items), made)


def tensors_in(likenesses: Sequence[Likeness]) -> Iterator[TensorValue]:
    """The tensors, containers looked into."""
    for likeness in likenesses:
        if isinstance(likeness, TensorLikeness):
            yield likeness.value
        elif isinstance(likeness, ContainerLikeness):
            yield from tensors_in(likeness.items)


def is_of(likenesses: Sequence[Likeness], place: Source) -> bool:
    """Whether one is of something that `place` leads to."""
    for likeness in likenesses:
        if isinstance(likeness, ContainerLikeness):
            if is_of(likeness.items, place):
                return True
            continue
        source = likeness.value.source if isinstance(likeness, TensorLikeness) else likeness.source
        if source is not None and leads_from(source, place):
            return True
    return False


class Matching:
    """Which values stand for which."""

    def __init__(self, t: Tracer) -> None:
        self._t = t
        self._old: list[TensorValue] = []
        # By the identity of a tensor's value, or of a container's likeness.
        self._found: dict[int, Value] = {}

    def matches(self, old: Sequence[Likeness], new: Sequence[Value]) -> bool:
        """Whether values may stand for others, in order: like each, and to each other as those are."""
        if len(old) != len(new) or not all(map(self._matches, old, new)):
            return False
        apart = len(set(map(id, self._found.values()))) == len(self._found)
        return apart and _sharing(self._old) == _sharing([self.instead(value) for value in self._old])

    def instead(self, old: TensorValue) -> TensorValue:
        """The tensor that stands for another one. Raises KeyError."""
        found = self._found[id(old)]
        assert isinstance(found, TensorValue)
        return found

    def _matches(self, old: Likeness, value: Value) -> bool:
        value = value.realise(self._t)
        match old:
            case TensorLikeness():
                if not isinstance(value, TensorValue) or not old.fits(value):
                    return False
                if value is not old.value and (value.source is not None or old.value.source is not None):
                    return False  # what it is guarded by is about another place
                self._old.append(old.value)
                return self._found.setdefault(id(old.value), value) is value
            case ContainerLikeness():
                found = _container(value)
                if found is None or found[0] != old.kind or len(found[1]) != len(old.items):
                    return False
                return self._found.setdefault(id(old), value) is value and all(map(self._matches, old.items, found[1]))
            case ConstantValue() if isinstance(value, ConstantValue):
                return _same_constant(old.constant(), value.constant())
        return value is old


def _container(value: Value) -> tuple[tuple[Any, ...], list[Value], Callable[[list[Value]], Value]] | None:
    """The kind and the items of a container that the trace made, and what makes one of other items."""
    if value.source is not None:
        return None
    if type(value) is TupleValue:
        cls = value.cls
        return (TupleValue, cls), value.items, lambda items: TupleValue(items, cls)
    if type(value) is ListValue and value.cls is list:
        return (ListValue,), value.items, ListValue
    if type(value) is DictValue and value.cls is dict and value.origin is None:
        keys = [(key, name) for key, (name, _) in value.items.items()]
        if all(name.is_constant() for _, name in keys):
            items = [item for _, item in value.items.values()]
            return (
                (DictValue, *value.items),
                items,
                lambda items: DictValue(
                    {key: (name, item) for (key, name), item in zip(keys, items, strict=True)}, dict
                ),
            )
    return None


def _same_constant(one: Any, other: Any) -> bool:
    return type(one) is type(other) and repr(one) == repr(other) and bool(one == other or one != one)


def _properties(fake: torch.Tensor) -> tuple[Any, ...]:
    """All that code may see of a tensor but its values."""
    return (
        fake.dtype, fake.device, fake.layout, fake.shape, fake.stride(), fake.storage_offset(), fake.untyped_storage().nbytes(),
        fake.requires_grad, fake.is_leaf, fake.grad_fn is None, fake._is_view(), 0 if fake.is_inference() else fake._version,
        torch._C._dispatch_keys(fake).raw_repr(),
    )  # fmt: skip


def _sharing(tensors: Sequence[TensorValue]) -> list[int]:
    """For each tensor the first one that has the same memory."""
    storages = [value.fake.untyped_storage()._cdata for value in tensors]
    return [storages.index(storage) for storage in storages]
