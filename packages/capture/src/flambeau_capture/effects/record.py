"""`Heap`: what the traced program changed outside itself, recorded and not done.

In: stores on objects that existed before the frame. Out: `effects()`, the final state of everything that changed, in order of first
change. Objects that the trace made itself carry their own state and need no record.
"""

from __future__ import annotations

from contextlib import contextmanager
from types import WrapperDescriptorType
from typing import TYPE_CHECKING, Any

import torch
from attrs import frozen

from ..captured import (
    CallFunction,
    DeleteAttribute,
    DeleteGlobal,
    Effect,
    ReplaceItems,
    SetAttribute,
    SetCell,
    SetGlobal,
)
from ..refusal import CannotCapture
from ..signals import GraphBreak
from ..sources.source import Pinned
from ..values.base import MISSING, Value
from ..values.builtins import BuiltinValue, ClassValue, RealValue
from ..values.constants import ConstantValue
from ..values.functions import CellValue, ClosureValue, MethodValue, PartialValue
from ..values.mappings import DictValue, shown_by
from ..values.objects import ObjectValue
from ..values.sequences import ListValue, TupleValue
from ..values.sets import SetValue
from ..values.tensor import TensorValue
from ..values.walk import contents, reachable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence


_PLAIN = (
    ConstantValue, TensorValue, RealValue, TupleValue, ListValue, DictValue, SetValue, ObjectValue, CellValue, ClosureValue, MethodValue, PartialValue,
)  # fmt: skip
"""Values all of whose contents are in fields of theirs."""


def _namespace_of(obj: Any) -> Any:
    """The dict of an object's or a class's attributes."""
    if isinstance(obj, type):
        return shown_by(type.__getattribute__(obj, "__dict__"))
    try:
        return object.__getattribute__(obj, "__dict__")
    except AttributeError:
        return None


def _parts_of(container: Value) -> tuple[Any, ...]:
    """What a container holds, by identity."""
    items = getattr(container, "items", ())
    return tuple(items.items() if isinstance(items, dict) else items)


@frozen
class Contents:
    """What a trace had recorded by then.

    Attributes:
        containers: those that changed, by identity, with what they hold.
        attributes: as the heap has them.
        others: everything else, the number of the writes among it that nothing tells.
    """

    containers: dict[int, tuple[Value, tuple[Any, ...]]]
    attributes: dict[tuple[int, str], tuple[Value, Value | None, bool]]
    others: tuple[Any, ...]


class Heap:
    """The changes of one trace."""

    def __init__(self, root_globals: dict[str, Any]) -> None:
        self.root_globals = root_globals
        self.containers: dict[int, Value] = {}
        self.attributes: dict[tuple[int, str], tuple[Value, Value | None, bool]] = {}
        # Attributes that were deleted and then stored: they are last in their object's dictionary now.
        self.renewed: set[tuple[int, str]] = set()
        # (class, name) of what was stored in classes.
        self.members: set[tuple[type, str]] = set()
        self.globals: dict[tuple[int, str], tuple[dict[str, Any], Value | None]] = {}
        self.cells: dict[int, tuple[Value, Value]] = {}
        self.calls: list[CallFunction] = []
        # By identity: objects of the trace's own, changes of which count too for now (see `watching`).
        self._watched: dict[int, Value] = {}
        self._writes = 0
        #: How often somebody was about to change something, of the trace's own or not.
        self.asked = 0
        # Those among the writes of which nothing else tells.
        self._own_writes = 0
        # By identity: containers that an operation of the graph holds on to.
        self._held: dict[int, Value] = {}
        # How many of the writes are undone by others among them, before anything of torch that makes them is over.
        self._undone = 0
        # Real dicts that were written to as such, and (at some number of writes) those that attributes and globals were stored in.
        self._written: set[int] = set()
        self._stored_in: set[int] = set()
        self._stored_at = 0

    def changed(self, container: Value) -> None:
        """A container is about to change."""
        self.asked += 1
        if id(container) in self._held:
            raise CannotCapture(
                GraphBreak("unsupported-store", "a container changes that an autograd.Function was given")
            )
        if container.source is not None:
            self._writes += 1
            self.containers[id(container)] = container
            shows = getattr(container, "shows", None)
            if shows is not None:
                self._written.add(id(shows))
        elif self._watched:
            self._note(container)

    def keep_as_is(self, values: Iterable[Value]) -> None:
        """What these lead to is held by an operation of the graph, which sees no change of the frame's: frames with one run in eager."""
        self._held |= {
            identity: value
            for identity, value in reachable(values).items()
            if isinstance(value, (ListValue, DictValue))
        }

    def wrote(self) -> None:
        """Memory of the trace's own was written, which nothing else tells."""
        self._writes += 1
        self._own_writes += 1

    def refuse_stored(self, namespace: Any) -> None:
        """Break where a dict is read that attributes or globals were stored in: it is not known what it holds now."""
        if self._stored_at != self._writes:
            self._stored_at = self._writes
            real = (target.real() for target, _, _ in self.attributes.values())
            self._stored_in = {id(_namespace_of(obj)) for obj in real if obj is not MISSING}
            self._stored_in.update(id(found) for found, _ in self.globals.values())
        if id(namespace) in self._stored_in:
            raise GraphBreak("unsupported-operation", "reading a namespace as a dict after something was stored in it")

    def refuse_written_attributes(self, obj: Any) -> None:
        """Break where an object is asked for an attribute, and its namespace was written to as a dict."""
        if self._written:
            self.refuse_written(_namespace_of(obj))

    def refuse_written(self, namespace: Any) -> None:
        """Break where a dict is asked for what it has by name, as that of globals is, and it was written to as a dict."""
        if id(namespace) in self._written:
            raise GraphBreak("unsupported-operation", "using a namespace whose dict was written to before")

    def _note(self, target: Value) -> None:
        if id(target) in self._watched:
            self._writes += 1
            self._own_writes += 1

    @contextmanager
    def watching(self, values: Iterable[Value]) -> Iterator[None]:
        """Count changes of these too, and of all that they and what was recorded lead to, objects of the trace's own among them."""
        outer = self._watched
        self._watched = outer | reachable((*values, *self._parts()))
        try:
            yield
        finally:
            self._watched = outer

    def _parts(self) -> Iterator[Value | None]:
        """What changed, and what was stored."""
        yield from self.containers.values()
        yield from (value for _, value in (*self.globals.values(), *self.cells.values()))
        yield from (part for target, value, _ in self.attributes.values() for part in (target, value))

    def held(self) -> tuple[Any, ...] | None:
        """What the objects of the trace's own have in them that what was there before leads to now: the same things (`same_things`) as long as nothing changes
        them, which is not counted. None where that cannot be told."""
        own = [value for value in reachable(self._parts()).values() if value.source is None]
        return contents(own) if all(isinstance(value, _PLAIN) for value in own) else None

    def store_attribute(self, target: Value, name: str, value: Value | None, *, plain: bool = True) -> None:
        """`target.name = value` (None: deleted), recorded when the target existed before or is made by the graph."""
        self.asked += 1
        if isinstance(target, ClassValue):
            self.members.add((target.object, name))
        if target.source is not None or target.real() is not MISSING or isinstance(target, TensorValue):
            self._writes += 1
            key = (id(target), name)
            before = self.attributes.get(key)
            if before is not None and before[1] is None and value is not None:
                del self.attributes[key]
                if name in getattr(target.real(), "__dict__", ()):
                    self.renewed.add(key)
            self.attributes[key] = (target, value, plain)
        elif self._watched:
            self._note(target)

    def store_global(self, namespace: dict[str, Any], name: str, value: Value | None) -> None:
        """`namespace[name] = value` (None: deleted)."""
        self._writes += 1
        self.refuse_written(namespace)
        self.globals[(id(namespace), name)] = (namespace, value)

    def stored_global(self, namespace: dict[str, Any], name: str) -> Value | object | None:
        """What the trace stored under a global name; `MISSING` when nothing."""
        found = self.globals.get((id(namespace), name))
        return MISSING if found is None else found[1]

    def store_cell(self, cell: Value, value: Value) -> None:
        """A cell got new contents."""
        self.asked += 1
        if cell.source is None:
            self._note(cell)
            return
        self._writes += 1
        self.cells[id(cell)] = (cell, value)

    def call_later(self, function: Value, args: Sequence[Value]) -> Value:
        """Have a call done after the graph, of constants or of an object that it changes; what it gives now is None."""
        self.calls.append(CallFunction(function, tuple(args)))
        return ConstantValue(None)

    def size(self) -> tuple[int, ...]:
        """How much has been recorded: equal before and after something that changed nothing."""
        return self._writes, len(self.calls)

    def lasting(self) -> tuple[int, ...]:
        """`size`, without the writes that were `undone` meanwhile."""
        return self._writes - self._undone, len(self.calls)

    @contextmanager
    def undone(self) -> Iterator[None]:
        """Writes of something that puts back what it replaced, as `functional_call` does with parameters."""
        before = self._writes
        try:
            yield
        finally:
            self._undone += self._writes - before

    def contents(self) -> Contents:
        """What has been recorded so far, to be compared with what is recorded later."""
        containers = {key: (container, _parts_of(container)) for key, container in self.containers.items()}
        others = (*self.globals.items(), *self.cells.items(), *enumerate(self.calls), *self.renewed, self._own_writes)
        return Contents(containers, dict(self.attributes), others)

    def targets(self) -> Iterator[Value]:
        """Every container and object that existed before and changed."""
        yield from self.containers.values()
        yield from {id(target): target for target, _, _ in self.attributes.values()}.values()
        yield from {id(arg): arg for call in self.calls for arg in call.args if arg.source is not None}.values()

    def effects(self) -> tuple[Effect, ...]:
        """The records for the rewriter."""
        return tuple(self._effects())

    def _effects(self) -> Iterator[Effect]:
        # Containers first: a module's tables get their final contents before a store by the module's own rule looks into them.
        for container in self.containers.values():
            if isinstance(container, DictValue):
                yield ReplaceItems(container, "dict", tuple(part for pair in container.items.values() for part in pair))
            elif isinstance(container, SetValue):
                yield ReplaceItems(container, "set", tuple(container.as_added()))
            elif isinstance(container, ListValue):
                yield ReplaceItems(container, "list" if container.cls is list else "deque", tuple(container.items))
        for key, (target, value, plain) in self.attributes.items():
            name, own = key[1], target.python_type().__setattr__
            if key in self.renewed and value is not None:
                yield DeleteAttribute(target, name)
            if value is None:
                yield DeleteAttribute(target, name)
            elif plain or own is torch.nn.Module.__setattr__ or isinstance(own, WrapperDescriptorType):
                yield SetAttribute(target, name, value, plain)
            else:
                store: Any = torch.nn.Module.__setattr__
                yield CallFunction(BuiltinValue(store, Pinned(store)), (target, ConstantValue(name), value))
        for (_, name), (namespace, value) in self.globals.items():
            where = None if namespace is self.root_globals else namespace
            yield SetGlobal(where, name, value) if value is not None else DeleteGlobal(where, name)
        for cell, value in self.cells.values():
            yield SetCell(cell, value)
        yield from self.calls
