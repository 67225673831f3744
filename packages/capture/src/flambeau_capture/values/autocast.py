"""`AutocastValue`: a `torch.autocast`.

In: its settings, from outside or as the traced program gives them. Out: it is entered and left at trace time, and by nodes of the graph.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.amp.autocast_mode
from attrs import frozen

from ..signals import GraphBreak
from ..sources.source import InstanceDict, Item
from .base import MISSING, Value
from .constants import ConstantValue
from .objects import ObjectValue

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..sources.source import Source
    from .base import Tracer

_SETTINGS = ("device", "fast_dtype", "_enabled", "_cache_enabled")
"""What a `torch.autocast` holds, in the order in which torch's function for entering takes it."""


class AutocastValue(ObjectValue):
    """A `torch.autocast`: entered and left for real while tracing, and as graph nodes.

    `entered` holds, for each time it was entered by the traced program, the mode in force and its node. One from outside that was
    entered before the frame is left by going into the state it found: `outer` are the settings of that.
    """

    __slots__ = ("entered", "outer", "settings")

    def __init__(
        self,
        settings: tuple[Any, ...],
        object: Any = MISSING,
        source: Source | None = None,
        outer: tuple[Any, ...] | None = None,
    ) -> None:
        super().__init__(torch.autocast, object, source)
        self.settings = settings
        self.outer = outer
        self.entered: list[Mode] = []

    def rebuild(self, e: Any) -> None:
        if self.source is not None:
            e.source(self.source)
            return
        e.pinned(_make_autocast)
        for setting in self.settings:
            e.const(setting) if not isinstance(setting, torch.dtype) else e.pinned(setting)
        e.call(len(self.settings))

    def fill(self, e: Any) -> None:
        """Nothing: `rebuild` makes it whole."""

    def get_attribute(self, t: Tracer, name: str) -> Value:
        from .bound import BoundBuiltin

        if name in ("__enter__", "__exit__"):
            return BoundBuiltin(self, name)
        if name in _SETTINGS:
            return ConstantValue(self.settings[_SETTINGS.index(name)])
        if name in ("prev", "prev_fastdtype", "prev_cache_enabled"):
            raise GraphBreak("unsupported-attribute", f"{name!r} of an autocast")
        return super().get_attribute(t, name)

    def set_attribute(self, t: Tracer, name: str, value: Value) -> None:
        raise GraphBreak("unsupported-store", f"storing {name!r} of an autocast")

    def call_method(self, t: Tracer, name: str, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
        if name == "__enter__":
            self.enter(t)
            return self
        if name == "__exit__":
            self.leave(t)
            return ConstantValue(False)
        return super().call_method(t, name, args, kwargs)

    def enter(self, t: Tracer) -> None:
        """Enter, now and in the graph."""
        self.entered.append(_open(t, self, self.settings, "enter"))

    def leave(self, t: Tracer) -> None:
        """Leave, now and in the graph."""
        if self.entered:
            _close(t, self.entered.pop())
        elif self.outer is not None:
            _open(t, self, self.outer, "leave")
            self.outer = None
        else:
            raise GraphBreak("unsupported-call", "an autocast is left that was not entered")


class DerivedAutocastValue(AutocastValue):
    """An object of a class derived from `torch.autocast`: its methods are traced, and reach the entering and leaving of that through `super()`.

    What it is entered with are its attributes then, whatever its class makes of the arguments.
    """

    __slots__ = ()

    def __init__(self, cls: type, object: Any = MISSING, source: Source | None = None) -> None:
        super().__init__((), object, source)
        self.cls = cls

    rebuild = ObjectValue.rebuild
    fill = ObjectValue.fill
    get_attribute = ObjectValue.get_attribute
    set_attribute = ObjectValue.set_attribute

    def enter(self, t: Tracer) -> None:
        self.settings = tuple(t.folder.concrete(t.attributes.get_attribute(self, name)) for name in _SETTINGS)
        super().enter(t)


@frozen(eq=False)
class Mode:
    """A state of autocast in force while tracing; `how` says what the program did to get there."""

    value: AutocastValue
    real: Any
    node: Any
    how: str


def _open(t: Tracer, value: AutocastValue, settings: tuple[Any, ...], how: str) -> Mode:
    real = torch.amp.autocast_mode._enter_autocast(*settings)
    mode = Mode(value, real, t.graph.derive(torch.amp.autocast_mode._enter_autocast, settings, None), how)
    t.graph.open_modes.append(mode)
    return mode


def _close(t: Tracer, mode: Mode) -> None:
    if t.graph.open_modes[-1] is not mode:
        raise GraphBreak("unsupported-call", "autocasts are not left in the order in which they were entered")
    t.graph.open_modes.pop()
    torch.amp.autocast_mode._exit_autocast(mode.real)
    t.graph.derive(torch.amp.autocast_mode._exit_autocast, (mode.node,), None)


def wrap_autocast(t: Tracer, obj: torch.autocast, source: Source) -> AutocastValue:
    """An autocast from outside, its settings guarded; those of the state around it too, where it has been entered."""
    if type(obj) is not torch.autocast:
        return DerivedAutocastValue(type(obj), obj, source)
    before = ("prev_fastdtype", "prev", "prev_cache_enabled")
    if not vars(obj).keys() >= {*_SETTINGS, *(before if "prev" in vars(obj) else ())}:
        raise GraphBreak("unsupported-argument", "an autocast that is being made or entered")
    found = _read(t, obj, source, _SETTINGS)
    outer = (obj.device, *_read(t, obj, source, before)) if "prev" in vars(obj) else None
    if outer is None:
        t.guards.absent(InstanceDict(source), "prev")
    return AutocastValue(found, obj, source, outer)


def _read(t: Tracer, obj: Any, source: Source, names: Sequence[str]) -> tuple[Any, ...]:
    for name in names:
        t.guards.constant(Item(InstanceDict(source), name), getattr(obj, name))
    return tuple(getattr(obj, name) for name in names)


def _make_autocast(device: str, dtype: Any, enabled: bool, cache_enabled: bool) -> Any:
    return torch.autocast(device, dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)
