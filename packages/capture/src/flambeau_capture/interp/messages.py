"""Warnings, as plain Python would give them: from the place that it would tell.

In: what the library warned of in an operation, or what the program warns of. Out: the same after the graph; or a break where a filter raises it, or
somebody records it.
"""

from __future__ import annotations

import re
import sys
import warnings
from typing import TYPE_CHECKING, Any

from ..library import functools
from ..rewrite.resume import is_part
from ..signals import GraphBreak
from ..values.constants import ConstantValue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import FrameType

    from ..graph.quiet import Heard
    from ..values.base import Tracer
    from .frame import Frame, Place

_SYMBOL = re.compile(r"\b[su]\d+\b")
"""How a changing size is called where torch puts it into a text."""


def tell_of_operation(t: Tracer, again: Callable[..., Any]) -> None:
    """The warnings of the operation that the graph was just given.

    Those that torch gives once in a process are given now, if they still are to be; those that it gives at each call, after the graph.

    Args:
        again: runs the operation on its fakes once more.
    """
    graph = t.graph
    for heard in (*graph.heard, *graph.kernels.warn(each_time=True)):
        if _SYMBOL.search(heard.text):
            raise GraphBreak("input-output", "a warning that tells of sizes which change")
        refuse_unless_only_told(t, heard.text, heard.category)
    first, second = (_heard_again(t, again) for _ in range(2))
    for heard in second:
        first.remove(heard)
        graph.warns = True
        t.heap.call_later(
            t.wrapper.wrap_pinned(_place_of(t, heard)),
            [ConstantValue(heard.text), t.wrapper.wrap_pinned(heard.category)],
        )
    for heard in first:
        _place_of(t, heard)(heard.text, heard.category)


def _heard_again(t: Tracer, again: Callable[..., Any]) -> list[Heard]:
    again(each_time=False)
    return [*t.graph.heard, *t.graph.kernels.warn(each_time=False)]


def _place_of(t: Tracer, heard: Heard) -> Callable[..., None]:
    if heard.place is not None:
        return functools.partial(_warn_at, *heard.place)
    assert heard.level is not None
    return warns_for(t, heard.level)


def refuse_unless_only_told(t: Tracer, text: str, category: type[Warning]) -> None:
    only_told = t.folder.ask(_is_only_told, [ConstantValue(text), t.wrapper.wrap_pinned(category)], {}).constant()
    if not only_told or _is_recorded_by(t.info.locals.values()):
        raise GraphBreak("input-output", "a warning that is raised or recorded")


def warns_for(t: Tracer, level: int) -> Callable[..., None]:
    """What warns for the frame that is traced, or for the one that many calls above it."""
    places = list(_callers(t.frames.frame))
    if level < len(places):
        return functools.partial(_warn_at, *places[level])
    # Of a frame that is not traced, which the call finds where it is made.
    return functools.partial(_warn_above, level - len(places) + 2)


def _callers(frame: Frame | None) -> Iterator[Place]:
    """Where a frame is, and each call above it, as plain Python makes them."""
    while frame is not None:
        yield frame.code.co_filename, frame.instructions[frame.index].position.line or 1, frame.globals
        yield from frame.left_out
        frame = frame.caller


def _warn_above(level: int, message: Any, category: Any = None) -> None:
    """`warnings.warn` for who called the function that called this, `level` calls up. Of the frames of a function that was cut, each but
    the first is called by the one before."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and is_part(frame.f_code):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, level + 1)


def _warn_at(filename: str, line: int, namespace: dict[str, Any], message: Any, category: Any = None) -> None:
    """What `warnings.warn` does where a line of a file with these globals calls it."""
    registry = namespace.setdefault("__warningregistry__", {})
    kind = UserWarning if category is None else category
    warnings.warn_explicit(message, kind, filename, line, namespace.get("__name__", "<string>"), registry)


def _is_only_told(text: str, category: type[Warning]) -> bool:
    """Whether no filter makes an exception of a warning, wherever it comes from."""
    for action, message, kind, module, line in warnings.filters:
        said = message is None or (message == text if isinstance(message, str) else message.match(text))
        if said and issubclass(category, kind):
            if action == "error":
                return False
            if module is None and not line:
                return True
    return True


def _is_recorded_by(variables: Iterable[Any]) -> bool:
    """Whether warnings go to a list that the program holds (`catch_warnings(record=True)`): it would look into it too early."""
    show = getattr(warnings, "_showwarnmsg_impl", None)
    record = getattr(show, "__self__", None)
    return isinstance(record, list) and any(found is record for found in variables)
