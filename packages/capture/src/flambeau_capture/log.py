"""The logger of capture and the names of its events; only `flambeau` (the api package) configures output.

In: events with key-value pairs. Out: what `send_to` was given (`flambeau` gives a logger of its own); without that, structlog once the
program has configured it; until then the standard library's logger of the same name, which shows warnings and drops the rest.
"""

from __future__ import annotations

import importlib
import logging
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import CodeType
from typing import Any, Final

from attrs import frozen

from .library import functools, time, weakref

NAME: Final = "flambeau.capture"


class _Logger:
    """Asks at every event where it goes, so that the order of imports and configuration does not matter."""

    destination: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.destination or _by_configuration(), name)


logger: Any = _Logger()


def load_structlog() -> Any:
    """structlog, loaded for the first event that goes there: it loads rich where that is installed, for tens of milliseconds.

    Python's generator stays as it is: rich draws from it as it is loaded.
    """
    numbers = random.getstate()
    try:
        return importlib.import_module("structlog")
    finally:
        random.setstate(numbers)


@functools.cache
def _loggers() -> tuple[Any, Any]:
    """structlog's logger, and the one for as long as the program has not configured structlog."""
    structlog = load_structlog()
    unconfigured = structlog.wrap_logger(
        logging.getLogger(NAME),
        processors=[structlog.stdlib.filter_by_level, structlog.processors.KeyValueRenderer(key_order=["event"])],
        wrapper_class=structlog.stdlib.BoundLogger,
    )
    return structlog.get_logger(NAME), unconfigured


def _by_configuration() -> Any:
    configured, unconfigured = _loggers()
    return configured if sys.modules["structlog"].is_configured() else unconfigured


def send_to(destination: Any) -> None:
    """Give every event to `destination`, a logger as structlog's are, whatever the program configures; None: as without."""
    logger.destination = destination


@frozen(repr=False)
class Text:
    """A value of an event that is put into words only where the event is shown: most events are dropped."""

    make: Callable[[], Any]

    def __repr__(self) -> str:
        return str(self.make())


compile_id: ContextVar[str] = ContextVar("flambeau_compile_id", default="")
"""Which compile is at work, as `frame/entry`: frames count in the order in which they were first looked at, entries of a frame from 0."""

_FRAMES: weakref.WeakKeyDictionary[CodeType, int] = weakref.WeakKeyDictionary()


def id_of(code: CodeType, entries: int) -> str:
    """The id of the compile that comes after so many entries of a code."""
    return f"{_FRAMES.setdefault(code, len(_FRAMES))}/{entries}"


def place_of(code: CodeType) -> dict[str, Any]:
    """The keys of an event that say which function it is about."""
    return {"function": code.co_qualname, "file": code.co_filename, "line": code.co_firstlineno}


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Log when a stage begins, and how long it took."""
    logger.debug(STAGE_BEGUN, stage=name)
    started = time.perf_counter()
    try:
        yield
    finally:
        logger.debug(STAGE_ENDED, stage=name, seconds=time.perf_counter() - started)


STAGE_BEGUN: Final = "stage_begun"
STAGE_ENDED: Final = "stage_ended"
GRAPH_BREAK: Final = "graph_break"
RECOMPILE: Final = "recompile"
RECOMPILE_LIMIT: Final = "recompile_limit"
NESTED_TOO_DEEP: Final = "nested_too_deep"
GUARDS: Final = "guards"
RECOMPILE_FAILURES: Final = "recompile_failures"
CAPTURED: Final = "captured"
BYTECODE: Final = "bytecode"
FRAME_SKIPPED: Final = "frame_skipped"
BREAK_IN_LOOP: Final = "graph_break_in_a_loop"
SIDE_EFFECTS: Final = "side_effects"
DYNAMIC: Final = "dynamic_shapes"
