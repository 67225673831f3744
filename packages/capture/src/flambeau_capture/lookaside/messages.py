"""Messages of the program: `logging` and `warnings`.

In: calls met while tracing, and what the library warned of in operations. Out: the same after the graph, with the place that Python would tell; or a break.
"""

from __future__ import annotations

import logging
import re
import sys
import warnings
from typing import TYPE_CHECKING, Any

from ..interp.signals import GraphBreak
from ..library import functools
from ..rewrite.resume import is_part
from ..values.base import MISSING, Value
from ..values.constants import ConstantValue
from .registry import replaces
from .torch_state import call_later

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from types import FrameType

    from ..graph.quiet import Heard
    from ..interp.frame import Frame, Place
    from ..interp.tracer import Tracer

    Args = Sequence[Value]
    Kwargs = Mapping[str, Value]

_LOGGING: Any = logging
_HOW = {name: getattr(logging.Logger, name) for name in ("_log", "findCaller", "log")}
"""What finds the place, and what may be overridden."""


def _log_method(method: Any, level: int | None) -> None:
    """A method of a logger with a fixed level, or with one as its first argument."""

    def replacement(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        first, given = (1, [level]) if level is not None else (2, [t.to_python(arg) for arg in args[1:2]])
        if kwargs or args[0].real() is MISSING or not all(t.is_foldable(arg) for arg in args[1:]):
            raise GraphBreak("input-output", "a message that is not constant is logged")
        if len(args) <= first or type(given[0]) is not int:
            raise GraphBreak("input-output", "a message without a level or a text is logged")
        place = _place(t)
        if place is None or not _LOGGING._srcfile or not _finds_as_usual(args[0].real()):
            raise GraphBreak("input-output", "a message is logged by a logger that finds its place in its own way")
        told = t.wrap_pinned(functools.partial(_log_at, place, given[0]))
        return call_later(t, told, [t.wrap_pinned(args[0].real()), *args[first:]])

    replaces(method)(replacement)


for _name in ("debug", "info", "warning", "error", "critical"):
    _log_method(getattr(logging.Logger, _name), getattr(logging, _name.upper()))
_log_method(logging.Logger.log, None)


@replaces(logging.Logger.exception)
def log_exception(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    raise GraphBreak("input-output", "an exception is logged with what is being handled")


def _place(t: Tracer) -> tuple[str, int, str] | None:
    """File, line and function that a message tells: the frame that called `logging`; None where that is not traced."""
    frame: Frame | None = t.frame
    while frame is not None and frame.code.co_filename == _LOGGING._srcfile:
        frame = frame.caller
    if frame is None:
        return None
    line = frame.instructions[frame.index].position.line or 1
    return frame.code.co_filename, line, frame.code.co_name


def _finds_as_usual(logger: Any) -> bool:
    return all(getattr(type(logger), name) is usual and name not in vars(logger) for name, usual in _HOW.items())


def _log_at(place: tuple[str, int, str], level: int, logger: Any, message: Any, *args: Any) -> None:
    """What a logger does where this place logs a message."""
    if not _finds_as_usual(logger):
        logger.log(level, message, *args)
    elif logger.isEnabledFor(level):
        file, line, function = place
        logger.handle(logger.makeRecord(logger.name, level, file, line, message, args, None, function, None, None))


@replaces(warnings.warn)
def warn(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    if not all(t.is_foldable(arg) for arg in args) or len(args) > 3 or kwargs:
        raise GraphBreak("input-output", "a warning that is not constant")
    message, category = t.to_python(args[0]), t.to_python(args[1]) if len(args) > 1 else None
    if type(message) is not str or not _is_category(category):
        raise GraphBreak("input-output", "a warning without a text or a category")
    _refuse_unless_only_told(t, message, category or UserWarning)
    level = t.to_python(args[2]) if len(args) > 2 else 1
    if type(level) is not int:
        raise GraphBreak("input-output", "a warning whose level is no number")
    return call_later(t, t.wrap_pinned(_warns(t, max(level, 1) - 1)), args[:2])


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
        _refuse_unless_only_told(t, heard.text, heard.category)
    first, second = (_heard_again(t, again) for _ in range(2))
    for heard in second:
        first.remove(heard)
        graph.warns = True
        call_later(t, t.wrap_pinned(_place_of(t, heard)), [ConstantValue(heard.text), t.wrap_pinned(heard.category)])
    for heard in first:
        _place_of(t, heard)(heard.text, heard.category)


def _heard_again(t: Tracer, again: Callable[..., Any]) -> list[Heard]:
    again(each_time=False)
    return [*t.graph.heard, *t.graph.kernels.warn(each_time=False)]


def _place_of(t: Tracer, heard: Heard) -> Callable[..., None]:
    if heard.place is not None:
        return functools.partial(_warn_at, *heard.place)
    assert heard.level is not None
    return _warns(t, heard.level)


def _refuse_unless_only_told(t: Tracer, text: str, category: type[Warning]) -> None:
    only_told = t.ask(_is_only_told, [ConstantValue(text), t.wrap_pinned(category)], {}).constant()
    if not only_told or _is_recorded_by(t.info.locals.values()):
        raise GraphBreak("input-output", "a warning that is raised or recorded")


def _warns(t: Tracer, level: int) -> Callable[..., None]:
    """What warns for the frame that is traced, or for the one that many calls above it."""
    places = list(_callers(t.frame))
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


def _is_category(given: Any) -> bool:
    return given is None or (isinstance(given, type) and issubclass(given, Warning))


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


@replaces(warnings.catch_warnings)
def catch_warnings(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    raise GraphBreak("unsupported-call", "warnings.catch_warnings")


@replaces(warnings.simplefilter, warnings.filterwarnings, warnings.resetwarnings)
def filter_warnings(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    raise GraphBreak("unsupported-call", "the filters of warnings are changed")
