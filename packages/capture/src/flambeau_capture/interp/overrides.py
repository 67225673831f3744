"""`Overrides`: who is asked in torch's place, as torch has it: modes of `__torch_function__`, then the classes of tensors.

In: operations that are about to be recorded, attributes that are about to be read. Out: what the innermost mode, or the classes of the arguments in
torch's order, made of them; for the rest the operation on plain tensors. `__torch_function__` is traced like any other function.
"""

from __future__ import annotations

import enum
import types
from typing import TYPE_CHECKING, Any

import torch

from ..class_names import class_module
from ..signals import GraphBreak
from ..sources.source import Computed, Pinned
from ..values.base import MISSING, Value
from ..values.functions import FunctionValue
from ..values.lazy import LazyValue
from ..values.mappings import DictValue
from ..values.sequences import ListValue, SliceValue, TupleValue
from ..values.subclasses import SubclassValue
from ..values.tensor import TensorValue
from .override_probe import handed_on, read_attribute
from .part import Part
from .tensor_classes import refuse_class

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ..values.base import Tracer
    from .override_probe import HandedOn

NO_OVERRIDE = (torch._C._disabled_torch_function_impl, MISSING)
"""What a class has for `__torch_function__` that is not asked."""
_DEPTH = 5


class Asked(enum.Enum):
    """Who is asked: torch's switch for the thread."""

    ALL = 0
    MODES = 1
    NOBODY = 2


class Overrides(Part):
    """The stack of modes and the switch, as the program has them."""

    def __init__(self, t: Tracer) -> None:
        super().__init__(t)
        #: How the switch stands where the frame begins.
        self.initial = Asked.ALL if torch._C._is_torch_function_enabled() else Asked.MODES
        self.asked = self.initial
        #: Modes in force where the frame begins.
        self.outer: list[Value] = []
        #: Modes in force, the innermost last.
        self.modes: list[Value] = []
        #: Whether there has been a tensor of a subclass.
        self.has_subclasses = False

    def begin(self, modes: Sequence[Any]) -> None:
        """The frame begins with these modes in force, which its entry is guarded by."""
        self.outer = [LazyValue(mode, _source_of(place)) for place, mode in enumerate(modes)]
        self.modes = list(self.outer)

    # who is asked

    @property
    def listens(self) -> bool:
        """Whether a mode is asked about every operation."""
        return bool(self.modes) and self.asked is not Asked.NOBODY

    @property
    def is_watched(self) -> bool:
        """Whether a mode of the program's is asked, which may note what torch's own functions call inside of them."""
        classes = (mode.realise(self.t).python_type() for mode in self.modes)
        return self.listens and any(class_module(cls).partition(".")[0] != "torch" for cls in classes)

    def applies(self, args: Sequence[Value], kwargs: Mapping[str, Value]) -> bool:
        """Whether torch asks a mode or a class about a call with these arguments."""
        if self.listens:
            return True
        if not self.has_subclasses or self.asked is not Asked.ALL:
            return False
        return any(self.is_asked(value) for value in self._subclasses((*args, *kwargs.values())))

    def is_asked(self, value: Value) -> bool:
        """Whether the class of a value answers torch's functions in torch's place, as `torch.overrides.has_torch_function` has it."""
        return value.python_type() is not torch.Tensor and self.has_answer(value)

    def has_answer(self, value: Value) -> bool:
        """Whether the class of a value has a `__torch_function__` that may be asked: plain tensors have one too."""
        found, _ = self.t.members.class_member(value.python_type(), "__torch_function__")
        return not any(found is other for other in NO_OVERRIDE)

    def _subclasses(self, values: Sequence[Value]) -> list[SubclassValue]:
        """The tensors of subclasses among arguments, in order, containers looked into."""
        return [part for value in values for part in self._parts(value) if isinstance(part, SubclassValue)]

    def _parts(self, value: Value, depth: int = 0) -> Iterator[Value]:
        value = value.realise(self.t)
        yield value
        if depth == _DEPTH:
            return
        inner: Sequence[Value] = ()
        if isinstance(value, (TupleValue, ListValue)):
            inner = value.items
        elif isinstance(value, DictValue) and value.origin is None:
            inner = [item for _, item in value.items.values()]
        elif isinstance(value, SliceValue):
            inner = value.parts
        for part in inner:
            yield from self._parts(part, depth + 1)

    # what becomes of an operation

    def instead(self, kind: str, target: Any, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value | None:
        """The result of an operation that is no node as it stands; None for one on plain tensors that nobody is asked about."""
        if not self.has_subclasses and not self.listens:
            return None
        if kind == "call_method":
            return self._method(target, args, kwargs)
        has_subclass = bool(self._subclasses((*args, *kwargs.values())))
        if not self.applies(args, kwargs):
            return self._plainly(kind, target, args, kwargs) if has_subclass else None
        if isinstance(target, types.FunctionType):
            # What asks is in its own code, or in what that calls.
            return self.t.caller.inline_function(FunctionValue(target, Pinned(target)), target, args, kwargs)
        found = self._handed_on(target, args, kwargs)
        if found is not None:
            return self.ask(found)
        return self._plainly(kind, target, args, kwargs) if has_subclass else None

    def method(self, owner: Value, name: str, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        """Torch's own method of a tensor of a subclass."""
        found = self._method(name, [owner, *args], kwargs)
        assert found is not None
        return found

    def _method(self, name: str, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value | None:
        has_subclass = bool(self._subclasses((*args, *kwargs.values())))
        if not self.applies(args, kwargs):
            return self._plainly("call_method", name, args, kwargs) if has_subclass else None
        function = getattr(torch.Tensor, name)
        if isinstance(function, types.FunctionType):
            return self.t.caller.call(self.t.wrapper.wrap_pinned(function), args, kwargs)
        found = self._handed_on(function, args, kwargs)
        if found is not None:
            return self.ask(found)
        return self._plainly("call_method", name, args, kwargs) if has_subclass else None

    def read(self, owner: SubclassValue | TensorValue, name: str) -> Value:
        """An attribute that torch has for tensors."""
        if self.applies([owner], {}):
            found = self._handed_on(read_attribute(name), [owner], {})
            if found is not None:
                return self.ask(found)
        if isinstance(owner, SubclassValue):
            return owner.own_fact(self.t, name)
        return owner.plain_attribute(self.t, name)

    def _handed_on(self, function: Any, args: Sequence[Value], kwargs: Mapping[str, Value]) -> HandedOn | None:
        found = handed_on(self.t, function, args, kwargs, subclasses=self.asked is Asked.ALL)
        if found is None or found.owners or self.listens:
            return found
        # Where a mode listens, a comparison looks at its first operand alone; else it is the inner function that asks the other one.
        inner = getattr(torch.Tensor, found.name.strip("_"), None)
        again = None if inner is None else handed_on(self.t, inner, args, kwargs, subclasses=True)
        if again is None or not again.owners:
            raise GraphBreak("unsupported-call", f"{found.name} asks none of the classes of its arguments")
        return again

    def ask(self, found: HandedOn) -> Value:
        """What the innermost mode, else the first class that does not decline, makes of a call."""
        if self.listens:
            mode = self.modes.pop()
            try:
                method = self.t.attributes.get_attribute(mode.realise(self.t), "__torch_function__")
                result = self.t.caller.call(method, found.given, {})
            finally:
                self.modes.append(mode)
            if not _declines(result):
                return result
        for owner in found.owners if self.asked is Asked.ALL else ():
            result = self.t.caller.call(self._method_of(owner), found.given, {})
            if not _declines(result):
                return result
        raise GraphBreak("operator-error", f"nobody who is asked implements {found.name}")

    def _method_of(self, owner: Value) -> Value:
        cls = owner.python_type()
        found, _ = self.t.members.class_member(cls, "__torch_function__")
        return self.t.attributes.bind_class_attribute(owner, cls, "__torch_function__", found)

    # plain tensors

    def _plainly(self, kind: str, target: Any, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        """The operation on the plain tensors of its arguments."""
        plain = [self._plain(value) for value in args]
        named = {name: self._plain(value) for name, value in kwargs.items()}
        if kind != "call_method":
            return self.given_back(args, kwargs, self.t.recorder.record(kind, target, plain, named))
        owner = plain[0].realise(self.t)
        if target == "as_subclass":
            return self.as_subclass(owner, plain[1:], named)
        if target == "__getitem__" and len(plain) == 2 and not named:
            return self.given_back(args, kwargs, owner.get_item(self.t, plain[1]))
        return self.given_back(args, kwargs, owner.call_method(self.t, target, plain[1:], named))

    def _plain(self, value: Value) -> Value:
        value = value.realise(self.t)
        if isinstance(value, SubclassValue):
            return value.plain
        if not self._subclasses([value]):
            return value
        if isinstance(value, TupleValue):
            return TupleValue([self._plain(item) for item in value.items], value.cls)
        if isinstance(value, ListValue):
            return ListValue([self._plain(item) for item in value.items], value.cls)
        if isinstance(value, SliceValue):
            start, stop, step = map(self._plain, value.parts)
            return SliceValue((start, stop, step))
        raise GraphBreak("unsupported-argument", f"{value.describe()} with tensors of a subclass is an argument")

    def given_back(self, args: Sequence[Value], kwargs: Mapping[str, Value], result: Value) -> Value:
        """The result of an operation on plain tensors: an argument that torch gives back is the very tensor of the subclass."""
        given = self._subclasses((*([kwargs["out"]] if "out" in kwargs else ()), *args, *kwargs.values()))
        owners = {id(value.plain): value for value in reversed(given)}
        if id(result) in owners:
            return owners[id(result)]
        if isinstance(result, (TupleValue, ListValue)) and any(id(item) in owners for item in result.items):
            return self.t.wrapper.sequence([owners.get(id(item), item) for item in result.items], result.cls)
        return result

    def as_subclass(self, owner: Value, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        """`tensor.as_subclass(cls)` of a plain tensor: another one with the same memory."""
        classes = [*args, *kwargs.values()]
        if len(classes) != 1 or not {"cls"}.issuperset(kwargs) or not isinstance(owner, TensorValue):
            raise GraphBreak("unsupported-call", "Tensor.as_subclass() with arguments that torch may refuse")
        cls = self.t.folder.concrete(classes[0])
        before, self.asked = self.asked, Asked.NOBODY
        try:
            alias = self.t.recorder.record("call_function", torch.ops.aten.alias.default, [owner], {})
        finally:
            self.asked = before
        return alias if cls is torch.Tensor else self.of_class(alias, cls)

    def of_class(self, plain: Value, cls: Any) -> SubclassValue:
        """A new tensor of the class, over the memory of a plain one that nothing else holds."""
        assert isinstance(plain, TensorValue)
        refuse_class(self.t, cls)
        if plain.fake.requires_grad and not torch.is_grad_enabled():
            raise GraphBreak("autograd-call", "a tensor of a subclass is made without gradients of one that has some")
        self.has_subclasses = True
        return SubclassValue(cls, plain)


def _source_of(place: int) -> Computed:
    """How a mode is reached that is in force where the frame begins."""
    return Computed(Pinned(place), torch._C._get_function_stack_at, f"function_mode_at({place})")


def _declines(result: Value) -> bool:
    return result.is_constant() and result.constant() is NotImplemented
