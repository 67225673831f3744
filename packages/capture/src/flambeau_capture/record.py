"""What happened in one compile of one frame, for reports.

In: the pipeline. Out: frozen records given to a region's observer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attrs import frozen

if TYPE_CHECKING:
    from types import CodeType

    from .guards.spec import GuardSpec


@frozen(eq=False)
class BreakRecord:
    """One graph break: a stable `code`, where, why, what to do. Columns as in `UserPosition`; None where they are not known, or on several lines."""

    code: str
    reason: str
    hint: str
    file: str
    line: int
    function: str
    stack: tuple[tuple[str, int, str], ...] = ()
    column: int | None = None
    end_column: int | None = None


@frozen(eq=False)
class CompileRecord:
    """One compile of one frame. `graph` is None when there was nothing to compute; `skipped` says why the frame runs in eager.

    `misses`: why each entry that the code has did not fit, in words; `contexts`: what the program's hooks told of that; `effects`: how much
    the frame changes outside of its graph (`captured.Effect`).
    """

    code: CodeType
    entry: int
    graph: Any
    operations: int
    guards: tuple[GuardSpec, ...]
    breaks: tuple[BreakRecord, ...]
    trace_seconds: float
    backend_seconds: float
    skipped: str = ""
    compile_id: str = ""
    misses: tuple[str, ...] = ()
    contexts: tuple[str, ...] = ()
    effects: int = 0
