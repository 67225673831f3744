"""Messages of the program: `logging` and `warnings`.

In: calls met while tracing, and what the library warned of in operations. Out: the same after the graph, with the place that Python would tell; or a break.
"""

from __future__ import annotations

import logging
import warnings
from typing import TYPE_CHECKING, Any

from ..interp.messages import refuse_unless_only_told, warns_for
from ..library import functools
from ..replacements import replaces
from ..signals import GraphBreak
from ..values.base import MISSING, Value

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..interp.frame import Frame
    from ..values.base import Tracer

    Args = Sequence[Value]
    Kwargs = Mapping[str, Value]

_LOGGING: Any = logging
_HOW = {name: getattr(logging.Logger, name) for name in ("_log", "findCaller", "log")}
"""What finds the place, and what may be overridden."""


def _log_method(method: Any, level: int | None) -> None:
    """A method of a logger with a fixed level, or with one as its first argument."""

    def replacement(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        first, given = (1, [level]) if level is not None else (2, [t.wrapper.to_python(arg) for arg in args[1:2]])
        if kwargs or args[0].real() is MISSING or not all(t.wrapper.is_foldable(arg) for arg in args[1:]):
            raise GraphBreak("input-output", "a message that is not constant is logged")
        if len(args) <= first or type(given[0]) is not int:
            raise GraphBreak("input-output", "a message without a level or a text is logged")
        place = _place(t)
        if place is None or not _LOGGING._srcfile or not _finds_as_usual(args[0].real()):
            raise GraphBreak("input-output", "a message is logged by a logger that finds its place in its own way")
        told = t.wrapper.wrap_pinned(functools.partial(_log_at, place, given[0]))
        return t.heap.call_later(told, [t.wrapper.wrap_pinned(args[0].real()), *args[first:]])

    replaces(method)(replacement)


for _name in ("debug", "info", "warning", "error", "critical"):
    _log_method(getattr(logging.Logger, _name), getattr(logging, _name.upper()))
_log_method(logging.Logger.log, None)


@replaces(logging.Logger.exception)
def log_exception(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    raise GraphBreak("input-output", "an exception is logged with what is being handled")


def _place(t: Tracer) -> tuple[str, int, str] | None:
    """File, line and function that a message tells: the frame that called `logging`; None where that is not traced."""
    frame: Frame | None = t.frames.frame
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
    if not all(t.wrapper.is_foldable(arg) for arg in args) or len(args) > 3 or kwargs:
        raise GraphBreak("input-output", "a warning that is not constant")
    message, category = t.wrapper.to_python(args[0]), t.wrapper.to_python(args[1]) if len(args) > 1 else None
    if type(message) is not str or not _is_category(category):
        raise GraphBreak("input-output", "a warning without a text or a category")
    refuse_unless_only_told(t, message, category or UserWarning)
    level = t.wrapper.to_python(args[2]) if len(args) > 2 else 1
    if type(level) is not int:
        raise GraphBreak("input-output", "a warning whose level is no number")
    return t.heap.call_later(t.wrapper.wrap_pinned(warns_for(t, max(level, 1) - 1)), args[:2])


def _is_category(given: Any) -> bool:
    return given is None or (isinstance(given, type) and issubclass(given, Warning))


@replaces(warnings.catch_warnings)
def catch_warnings(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    raise GraphBreak("unsupported-call", "warnings.catch_warnings")


@replaces(warnings.simplefilter, warnings.filterwarnings, warnings.resetwarnings)
def filter_warnings(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    raise GraphBreak("unsupported-call", "the filters of warnings are changed")
