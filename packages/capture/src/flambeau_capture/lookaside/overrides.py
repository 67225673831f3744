"""`__torch_function__`: what torch does for whoever answers in its place, the switch for that, and the stack of modes.

In: the traced program asks torch for them. Out: what `Overrides` (`interp/overrides.py`) says; effects that leave the stack of modes, after the
graph, as the program left it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.overrides
from torch.overrides import get_default_nowrap_functions

from ..captured import CallFunction
from ..interp.override_probe import HandedOn
from ..interp.overrides import Asked
from ..interp.tensor_classes import alias_of_class
from ..refusal import CannotCapture
from ..replacements import replaces
from ..signals import GraphBreak
from ..values.base import Value
from ..values.bound import BoundBuiltin
from ..values.constants import ConstantValue
from ..values.objects import ObjectValue
from ..values.sequences import ListValue, SequenceValue, TupleValue
from ..values.subclasses import NO_KEYWORDS, SubclassValue
from ..values.tensor import TensorValue

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ..interp.tracer import Tracer

    Args = Sequence[Value]
    Kwargs = Mapping[str, Value]

_PUSH: Any = torch._C._push_on_torch_function_stack
_POP: Any = torch._C._pop_torch_function_stack


# questions


@replaces(torch._C._has_torch_function)
def has_torch_function(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    asked = args[0].realise(t) if len(args) == 1 and not kwargs else None
    if not isinstance(asked, SequenceValue):
        raise GraphBreak("unsupported-call", "has_torch_function of something that is no list or tuple")
    return is_overridden(t, asked.items, kwargs)


@replaces(torch._C._has_torch_function_unary, torch._C._has_torch_function_variadic)
def is_overridden(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """Whether a mode is asked, or one of the classes answers torch's functions itself."""
    asks = t.overrides.asked is Asked.ALL and any(t.overrides.is_asked(value.realise(t)) for value in args)
    return ConstantValue(t.overrides.listens or asks)


@replaces(torch._C._is_torch_function_enabled)
def is_enabled(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return ConstantValue(t.overrides.asked is Asked.ALL)


@replaces(torch._C._is_torch_function_mode_enabled)
def is_mode_enabled(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return ConstantValue(t.overrides.listens or bool(_devices(t)))


# torch's own answers


@replaces(torch.overrides.handle_torch_function)
def handle(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """What functions of torch in Python do for arguments that answer themselves."""
    function, relevant, *given = args
    owners: list[Value] = []
    for value in t.operators.iterate_all(relevant) if t.overrides.asked is Asked.ALL else ():
        if t.overrides.has_answer(value):
            if not isinstance(value, (SubclassValue, TensorValue)):
                raise GraphBreak("unsupported-call", f"{value.describe()} answers torch's functions itself")
            _insert(owners, value)
    classes = TupleValue([t.wrapper.wrap_pinned(owner.python_type()) for owner in owners], tuple)
    values = (function, classes, TupleValue(list(given), tuple), t.wrapper.new_dict(dict(kwargs)))
    return t.overrides.ask(HandedOn(values, tuple(owners), function.describe()))


def _insert(owners: list[Value], value: Value) -> None:
    """Each class once, from the left, and subclasses before the classes that they derive from."""
    cls, others = value.python_type(), [owner.python_type() for owner in owners]
    if cls in others:
        return
    place = next((at for at, other in enumerate(others) if issubclass(cls, other)), len(owners))
    owners.insert(place, value)


@replaces(vars(torch.Tensor)["__torch_function__"].__func__)
def default_answer(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """What tensors of a subclass inherit: the operation on plain tensors, and the result of the subclass."""
    if not 3 <= len(args) + len(kwargs) <= 5 or not {"args", "kwargs"}.issuperset(kwargs) or len(args) < 3:
        raise GraphBreak("unsupported-call", "Tensor.__torch_function__ with arguments that it may refuse")
    owner, function, classes, *rest = args
    named = {**dict(zip(("args", "kwargs"), rest, strict=False)), **kwargs}
    cls = t.folder.concrete(owner)
    if not all(issubclass(cls, other) for other in t.folder.concrete(classes)):
        return ConstantValue(NotImplemented)
    positional = list(t.operators.iterate_all(named["args"])) if "args" in named else []
    keywords = {}
    if "kwargs" in named and named["kwargs"].python_type() is not type(None):
        keywords = {t.folder.concrete(key): value for key, value in t.operators.mapping_items(named["kwargs"])}
    before, t.overrides.asked = t.overrides.asked, _without_classes(t.overrides.asked)
    try:
        result = t.caller.call(function, positional, keywords or NO_KEYWORDS)
        if function.real() in get_default_nowrap_functions():
            return result
        return converted(t, result, cls, (*positional, *keywords.values()))
    finally:
        t.overrides.asked = before


def _without_classes(asked: Asked) -> Asked:
    return Asked.NOBODY if asked is Asked.NOBODY else Asked.MODES


def converted(t: Tracer, result: Value, cls: type, held: Args = ()) -> Value:
    """The result of an operation with every plain tensor in it as one of the class; `held`: what else may hold the result."""
    result = result.realise(t)
    if cls is torch.Tensor:
        return result
    if isinstance(result, SubclassValue) and not issubclass(result.cls, cls):
        return t.overrides.method(result, "as_subclass", [t.wrapper.wrap_pinned(cls)], {})
    if isinstance(result, TensorValue):
        if t.overrides.listens:
            raise GraphBreak("unsupported-call", "a mode that declined is asked about as_subclass")
        if result.source is not None or any(value is result for value in held):
            return t.overrides.as_subclass(result, [t.wrapper.wrap_pinned(cls)], {})
        return t.overrides.of_class(result, cls)
    if isinstance(result, (TupleValue, ListValue)):
        return t.wrapper.sequence([converted(t, item, cls, held) for item in result.items], result.cls)
    return result


@replaces(torch._tensor._convert)
def convert(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if len(args) != 2 or kwargs:
        raise GraphBreak("unsupported-call", "torch._tensor._convert with keyword arguments")
    return converted(t, args[0], t.folder.concrete(args[1]), (args[0],))


@replaces(torch._C._disabled_torch_function_impl)
def no_answer(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """The operation with no class asked."""
    if kwargs or not 2 <= len(args) <= 4:
        raise GraphBreak("unsupported-call", "_disabled_torch_function_impl with arguments that it may refuse")
    function, _, *rest = args
    positional = list(t.operators.iterate_all(rest[0])) if rest else []
    keywords = {}
    if len(rest) > 1 and rest[1].python_type() is not type(None):
        keywords = {t.folder.concrete(key): value for key, value in t.operators.mapping_items(rest[1])}
    before, t.overrides.asked = t.overrides.asked, _without_classes(t.overrides.asked)
    try:
        return t.caller.call(function, positional, keywords or NO_KEYWORDS)
    finally:
        t.overrides.asked = before


# tensors of a class


@replaces(torch._C.TensorBase.__new__)
def new_tensor(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    return alias_of_class(t, args, kwargs)


@replaces(torch.Tensor._make_subclass)
def make_subclass(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """A tensor of a class with the memory of another one, and no history."""
    if kwargs or not 2 <= len(args) <= 3:
        raise GraphBreak("unsupported-call", "Tensor._make_subclass with arguments that it may refuse")
    cls, data, *rest = args
    if any(t.folder.concrete(wanted) is not False for wanted in rest) or t.overrides.listens:
        raise GraphBreak("autograd-call", "Tensor._make_subclass makes a tensor that requires grad")
    data = data.realise(t)
    plain = data.plain if isinstance(data, SubclassValue) else data
    if not isinstance(plain, TensorValue):
        raise GraphBreak("unsupported-call", f"Tensor._make_subclass of {plain.describe()}")
    detached = t.recorder.record("call_method", "detach", [plain], {})
    return t.overrides.of_class(detached, t.folder.concrete(cls))


# the switch


class SwitchValue(Value):
    """`torch._C.DisableTorchFunctionSubclass()` or `torch._C.DisableTorchFunction()`."""

    __slots__ = ("before", "cls")

    def __init__(self, cls: type) -> None:
        super().__init__()
        self.cls = cls
        self.before: Asked | None = None

    def python_type(self) -> type:
        return self.cls

    def rebuild(self, e: Any) -> None:
        e.pinned(self.cls)
        e.call(0)

    def get_attribute(self, t: Any, name: str) -> Value:
        if name in ("__enter__", "__exit__"):
            return BoundBuiltin(self, name)
        return super().get_attribute(t, name)

    def call_method(self, t: Any, name: str, args: Args, kwargs: Kwargs) -> Value:
        if name == "__enter__":
            self.before = t.overrides.asked
            all_off = self.cls is torch._C.DisableTorchFunction
            t.overrides.asked = Asked.NOBODY if all_off else _without_classes(self.before)
            return ConstantValue(None)
        if name == "__exit__" and self.before is not None:
            t.overrides.asked = self.before
            return ConstantValue(False)
        raise GraphBreak("unsupported-call", f"{name} of {self.describe()}")


def _switch(cls: Any) -> None:
    @replaces(cls)
    def make(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        return SwitchValue(cls)


_switch(torch._C.DisableTorchFunctionSubclass)
_switch(torch._C.DisableTorchFunction)


# the stack of modes


def _devices(t: Tracer) -> list[Any]:
    """Modes in force that are devices; a program that has others beside them is refused."""
    return [*t.devices.entered, *([t.devices.outer] if t.devices.outer is not None else [])]


@replaces(_PUSH)
def push_mode(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    mode = args[0].realise(t)
    if _devices(t) or not isinstance(mode, ObjectValue) or t.overrides.asked is not Asked.ALL:
        raise GraphBreak(
            "unsupported-call", "a mode of __torch_function__ is entered beside a device, or while none is asked"
        )
    t.overrides.modes.append(mode)
    return ConstantValue(None)


@replaces(_POP)
def pop_mode(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if not t.overrides.modes:
        raise GraphBreak("unsupported-call", "a mode of __torch_function__ is left that was entered before")
    return t.overrides.modes.pop().realise(t)


@replaces(torch._C._len_torch_function_stack)
def count_modes(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if _devices(t):
        raise GraphBreak("unsupported-call", "the number of modes of __torch_function__ beside a device")
    return ConstantValue(len(t.overrides.modes))


@replaces(torch._C._get_function_stack_at)
def mode_at(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    place = t.folder.concrete(args[0])
    if _devices(t) or not isinstance(place, int) or not 0 <= place < len(t.overrides.modes):
        raise GraphBreak("unsupported-call", f"the mode of __torch_function__ at {place}")
    return t.overrides.modes[place].realise(t)


def mode_stack_effects(t: Tracer) -> Iterator[CallFunction]:
    """Leave and enter for real what the program left and entered. Raises CannotCapture where the switch is not as it was."""
    if t.overrides.asked is not t.overrides.initial:
        raise CannotCapture(GraphBreak("unsupported-call", "a break where classes of tensors are not asked"))
    before, now = ([mode.realise(t) for mode in modes] for modes in (t.overrides.outer, t.overrides.modes))
    kept = 0
    while kept < min(len(before), len(now)) and before[kept] is now[kept]:
        kept += 1
    for _ in before[kept:]:
        yield CallFunction(t.wrapper.wrap_pinned(_POP), ())
    for mode in now[kept:]:
        yield CallFunction(t.wrapper.wrap_pinned(_PUSH), (mode,))
