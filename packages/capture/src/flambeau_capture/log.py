"""The logger of capture and the names of its events; only `flambeau` (the api package) configures output.

In: events with key-value pairs. Out: where `event_log.py` says.
"""

from __future__ import annotations

from contextvars import ContextVar
from types import CodeType
from typing import Any, Final

from .event_log import EventLogger
from .event_log import Text as Text
from .library import weakref

logger = EventLogger("flambeau.capture")

compile_id: ContextVar[str] = ContextVar("flambeau_compile_id", default="")
"""Which compile is at work, as `frame/entry`: frames count in the order in which they were first looked at, entries of a frame from 0."""

_FRAMES: weakref.WeakKeyDictionary[CodeType, int] = weakref.WeakKeyDictionary()


def id_of(code: CodeType, entries: int) -> str:
    """The id of the compile that comes after so many entries of a code."""
    return f"{_FRAMES.setdefault(code, len(_FRAMES))}/{entries}"


def place_of(code: CodeType) -> dict[str, Any]:
    """The keys of an event that say which function it is about."""
    return {"function": code.co_qualname, "file": code.co_filename, "line": code.co_firstlineno}


GRAPH_BREAK: Final = "graph_break"
RECOMPILE: Final = "recompile"
RECOMPILE_LIMIT: Final = "recompile_limit"
NESTED_TOO_DEEP: Final = "nested_too_deep"
GUARDS: Final = "guards"
RECOMPILE_FAILURES: Final = "recompile_failures"
CAPTURED: Final = "captured"
BYTECODE: Final = "bytecode"
TRACE_SOURCE: Final = "trace_source"
TRACE_CALL: Final = "trace_call"
TRACE_BYTECODE: Final = "trace_bytecode"
FRAME_SKIPPED: Final = "frame_skipped"
NOTHING_CAPTURED: Final = "nothing_captured"
NO_FRAME: Final = "no function of Python ran in the call (it may have had the result already)"
BREAK_IN_LOOP: Final = "graph_break_in_a_loop"
SIDE_EFFECTS: Final = "side_effects"
DYNAMIC: Final = "dynamic_shapes"
