"""What a long compile is doing, on one line of the terminal: `FLAMBEAU_PROGRESS`.

In: the frames that are being compiled, in any thread and within each other, and the events of all packages. Out: a status line on standard error, where that is a
terminal and compiling takes longer than a second::

    ⠙ compiling Model.forward (model.py:12) · lowering · 14 measured · 3.2 s

A thread draws it, which is there only while something compiles. Events are listened to only once the line is shown: until then a compile costs what it costs without.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from time import perf_counter
from typing import Any

from attrs import define, field

from flambeau_capture import Around, FrameInfo

from . import log
from .status_line import StatusLine, is_terminal
from .targets import owner_name

PATIENCE_SECONDS, PERIOD_SECONDS = 1.0, 0.1
_PAUSE_SECONDS = 0.5
"""Compiles that follow each other within this time are one wait to who looks on: many small ones take long too."""
_ENDS = frozenset(("stage_ended", "stage_done", "stage"))


@define(eq=False)
class Compile:
    """A frame that is being compiled: the stages that it is in, the innermost last, and how often something was measured."""

    title: str
    stages: list[str] = field(factory=list)
    measured: int = 0


_CURRENT: ContextVar[Compile | None] = ContextVar("flambeau_progress", default=None)


class Board:
    """The compiles that go on in this process, and the thread that shows them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._going_on: list[Compile] = []
        self._began = self._ended = float("-inf")
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @contextmanager
    def shown(self, title: str, patience: float = PATIENCE_SECONDS) -> Iterator[None]:
        """A compile goes on inside. `patience`: seconds until a line is drawn."""
        compile = Compile(title)
        self._begin(compile, patience)
        token = _CURRENT.set(compile)
        try:
            yield
        finally:
            _CURRENT.reset(token)
            self._end(compile)

    def _begin(self, compile: Compile, patience: float) -> None:
        with self._lock:
            self._going_on.append(compile)
            if self._thread is not None:
                return
            now = perf_counter()
            if now - self._ended > _PAUSE_SECONDS:
                self._began = now
            self._stop = threading.Event()
            wait = max(self._began + patience - now, 0.0)
            line = StatusLine(sys.stderr)
            thread = threading.Thread(
                target=self._draw, args=(line, self._stop, wait), name="flambeau-progress", daemon=True
            )
            try:
                thread.start()
            except RuntimeError:  # no more threads, or Python is about to end: the compile goes on without a line
                return
            self._thread = thread

    def _end(self, compile: Compile) -> None:
        with self._lock:
            self._going_on.remove(compile)
            if self._going_on:
                return
            thread, self._thread = self._thread, None
            self._ended = perf_counter()
            self._stop.set()
        # No line is left on the terminal, and no thread behind, when the program goes on.
        if thread is not None:
            thread.join()

    def _draw(self, line: StatusLine, stop: threading.Event, wait: float) -> None:
        """The thread: draws until it is told to stop."""
        if stop.wait(wait):
            return
        log.listen(self._hear)
        try:
            while True:
                with self._lock:
                    parts = self._parts()
                if parts:
                    line.draw(parts)
                if stop.wait(PERIOD_SECONDS):
                    return
        finally:
            line.clear()
            log.forget(self._hear)

    def _parts(self) -> list[tuple[str, str]]:
        """The line: the compile that began last, and how long this has been going on."""
        if not self._going_on:
            return []
        compile = self._going_on[-1]
        parts = [("compiling ", ""), (compile.title, "bold")]
        told = compile.stages[-1:]
        told += [f"{compile.measured} measured"] if compile.measured else []
        told += [f"{perf_counter() - self._began:.1f} s"]
        others = len(self._going_on) - 1
        told += [f"{others} more"] if others else []
        return [*parts, *((f" · {words}", "dim") for words in told)]

    def _hear(self, method: str, event: Mapping[str, Any]) -> None:
        """An event, in the thread that gives it; those of build threads have the context of their compile."""
        compile = _CURRENT.get()
        if compile is None:
            return
        name = event.get("event")
        if name == "stage_begun":
            compile.stages.append(str(event["stage"]))
        elif name in _ENDS and str(event["stage"]) in compile.stages:
            del compile.stages[compile.stages.index(str(event["stage"])) :]
        elif name == "measured":
            compile.measured += 1


class _Process:
    """The board of this process; a forked child has none of its parent's threads, and begins anew."""

    board = Board()


def _begin_anew() -> None:
    _Process.board = Board()


os.register_at_fork(after_in_child=_begin_anew)


def around(shows: bool | str, inner: Around | None) -> Around | None:
    """What each compile of a region runs inside of, so that it is shown, and inside of that `inner`.

    `shows`: the setting `progress`.
    """
    if shows is False:
        return inner

    @contextmanager
    def compile_shown(frame: FrameInfo) -> Iterator[None]:
        within = inner(frame) if inner is not None else nullcontext()
        if not is_terminal(sys.stderr):
            with within:
                yield
            return
        code, owner = frame.code, owner_name(frame)
        title = f"{code.co_qualname} ({os.path.basename(code.co_filename)}:{code.co_firstlineno})"
        if owner and not code.co_qualname.startswith(f"{owner}."):
            title = owner  # a base class's or a decorator's function, and its place, say nothing of the model
        with _Process.board.shown(title, 0.0 if shows is True else PATIENCE_SECONDS), within:
            yield

    return compile_shown
