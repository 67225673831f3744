"""Keeps torch from telling the user what it only meets in a trace: fakes from writing to the log, operators from warning.

In: nothing. Out: contexts. An op that a fake tensor cannot run (its size would have to be known) ends the graph, which the break report
says; torch logs the traceback as an error besides, before it raises. Records and warnings of other threads, and of other loggers, pass.

Within them torch also gives the warnings that it gives once in a process each time, and so has not given them: the program's own call will.
"""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from types import CodeType, FrameType
from typing import Any

import torch
from attrs import frozen

from ..library import threading

_LOGGER = logging.getLogger("torch._subclasses.fake_tensor")


@contextmanager
def quiet_fakes() -> Iterator[None]:
    """Within it, this thread's fake tensors raise without a word."""
    own = threading.get_ident()

    def passes(record: logging.LogRecord) -> bool:
        return record.thread != own

    _LOGGER.addFilter(passes)
    try:
        yield
    finally:
        _LOGGER.removeFilter(passes)


class _OfThisThread:
    """What stands for the message of a filter of warnings: it matches while this thread is inside of one of the contexts below."""

    def __init__(self) -> None:
        self._local = threading.local()

    @property
    def depth(self) -> int:
        """How many of the contexts this thread is inside of."""
        return getattr(self._local, "depth", 0)

    def match(self, text: str) -> bool:
        """What `warnings` asks."""
        return self.depth > 0

    def enter(self) -> None:
        self._local.depth = self.depth + 1

    def leave(self) -> None:
        self._local.depth -= 1


_SILENCED, _HEARD = _OfThisThread(), _OfThisThread()
_IGNORE: Any = ("ignore", _SILENCED, Warning, None, 0)
_HEAR: Any = ("always", _HEARD, Warning, None, 0)


@contextmanager
def _filtering(rule: Any, *, each_time: bool) -> Iterator[None]:
    """Within it, a filter of this thread is the first. `warnings.catch_warnings` would make Python forget which warnings it has shown."""
    filters: Any = warnings.filters
    before = torch.is_warn_always_enabled()
    filters.insert(0, rule)
    rule[1].enter()
    if each_time:
        torch.set_warn_always(True)
    try:
        yield
    finally:
        torch.set_warn_always(before)
        rule[1].leave()
        if rule in filters:  # a program may have replaced them
            filters.remove(rule)


def no_warnings() -> AbstractContextManager[None]:
    """Within it, nothing that this thread does warns: the program's own call does."""
    return _filtering(_IGNORE, each_time=True)


@frozen
class Heard:
    """A warning that an operation gave.

    Attributes:
        text: what it says.
        category: its class.
        level: how many calls above the operation's caller it was given for; None where that is in a file of the library.
        place: that file, the line, and the file's globals.
    """

    text: str
    category: type[Warning]
    level: int | None
    place: tuple[str, int, dict[str, Any]] | None = None


class _Ears:
    """Stands for the function that shows warnings while some thread listens."""

    def __init__(self) -> None:
        self._local, self._lock, self._listening = threading.local(), threading.Lock(), 0
        self._shown_by: Any = None

    def put_on(self, root: CodeType) -> list[Heard]:
        self._local.listener = (root, heard := list[Heard](), getattr(self._local, "listener", None))
        with self._lock:
            self._listening += 1
            if self._listening == 1:
                self._shown_by, _WARNINGS._showwarnmsg = _WARNINGS._showwarnmsg, self
        return heard

    def take_off(self) -> None:
        self._local.listener = self._local.listener[2]
        with self._lock:
            self._listening -= 1
            if self._listening == 0:
                _WARNINGS._showwarnmsg = self._shown_by

    def __call__(self, message: Any) -> None:
        listener = getattr(self._local, "listener", None)
        if listener is None:
            self._shown_by(message)
        else:
            level, place = _where(message, listener[0])
            listener[1].append(Heard(str(message.message), message.category, level, place))


_WARNINGS: Any = warnings
_ears = _Ears()
_FAKES = (
    "flambeau_capture.", "torch._subclasses.", "torch._ops", "torch._refs.", "torch._prims.", "torch._prims_common.", "torch._decomp.",
    "torch._meta_registrations", "torch._library.", "torch.utils._",
)  # fmt: skip
"""Modules that run in place of an operator's kernel."""


def _where(message: Any, root: CodeType) -> tuple[int | None, tuple[str, int, dict[str, Any]] | None]:
    """The place that eager gives a warning for, as `Heard` has it; `root` is the code that calls the operation."""
    frames = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    start = next(place for place, frame in enumerate(frames) if frame.f_code is root)
    named = (message.filename, message.lineno)
    found = next((at for at, frame in enumerate(frames) if (frame.f_code.co_filename, frame.f_lineno) == named), start)
    while found < start and frames[found].f_globals.get("__name__", "").startswith(_FAKES):
        found += 1
    if found >= start:
        return found - start, None
    return None, (frames[found].f_code.co_filename, frames[found].f_lineno, frames[found].f_globals)


@contextmanager
def hearing(root: CodeType, *, each_time: bool) -> Iterator[list[Heard]]:
    """Within it, the warnings of what `root` calls in this thread are collected instead of given.

    Args:
        each_time: also those that torch gives once in a process, which it then still has to give.
    """
    heard = _ears.put_on(root)
    try:
        with _filtering(_HEAR, each_time=each_time):
            yield heard
    finally:
        _ears.take_off()
