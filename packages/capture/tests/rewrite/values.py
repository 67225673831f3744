"""Values for tests: constants, sourced objects, and containers that may contain themselves."""

from __future__ import annotations

from types import CellType, FunctionType

from flambeau_capture.frame import FrameInfo
from flambeau_capture.sources.source import Pinned
from flambeau_capture.values.base import Value


class Constant(Value):
    __slots__ = ("held",)

    def __init__(self, held):
        super().__init__()
        self.held = held

    def python_type(self):
        return type(self.held)

    def is_constant(self):
        return True

    def constant(self):
        return self.held

    def rebuild(self, e):
        e.const(self.held)


class Sourced(Value):
    """An object reached through a source."""

    __slots__ = ("cls",)

    def __init__(self, source, cls=object):
        super().__init__(source)
        self.cls = cls

    def python_type(self):
        return self.cls


def pinned(obj):
    return Sourced(Pinned(obj), type(obj))


class Output(Value):
    __slots__ = ()

    def python_type(self):
        return object


class Fresh(Value):
    """A list made by the trace; `items` may hold the value itself."""

    __slots__ = ("items",)

    def __init__(self, *items):
        super().__init__()
        self.items = list(items)

    def python_type(self):
        return list

    def rebuild(self, e):
        e.build("list", 0)

    def fill(self, e):
        for item in self.items:
            e.value(self)
            e.attr("append")
            e.value(item)
            e.call(1)
            e.pop()


class Cell(Value):
    """A cell made by the trace."""

    __slots__ = ("contents",)

    def __init__(self, contents):
        super().__init__()
        self.contents = contents

    def python_type(self):
        return CellType

    def rebuild(self, e):
        e.pinned(CellType)
        e.value(self.contents)
        e.call(1)


def frame_of(function: FunctionType, **locals_) -> FrameInfo:
    import builtins

    return FrameInfo(function.__code__, locals_, function.__globals__, vars(builtins), function.__closure__, function)
