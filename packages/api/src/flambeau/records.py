"""What a compilation did, as records: graphs, breaks, guards, programs, seconds.

In: what the stages report while they work (`Recorder`). Out: frozen records, of which `explanation.py` makes an `Explanation`.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from attrs import Factory, define, frozen

from flambeau_capture.error_root import UserPosition
from flambeau_runtime import Artifact

if TYPE_CHECKING:
    from types import CodeType

    # Only a region with CUDA graphs loads what records them.
    from flambeau_runtime.graphs import GraphDecision


class UserFrame(NamedTuple):
    """A frame of the user's, with the names that `traceback.FrameSummary` has for its parts.

    Attributes:
        filename, lineno, name: the file, the line that runs, and the function.
    """

    filename: str
    lineno: int
    name: str

    @property
    def line(self) -> str:
        """The text of the line, without its indent."""
        return linecache.getline(self.filename, self.lineno).strip()


@frozen
class BreakReason:
    """Why a graph ended.

    Attributes:
        file, line, function: the user's position.
        code: stable code of the reason.
        reason: one sentence.
        hint: what to do about it.
        column, end_column: the expression in its line, in bytes; None where that is not known.
        user_stack: the user's frames, outermost first.
    """

    file: str
    line: int
    function: str
    code: str
    reason: str
    hint: str
    column: int | None = None
    end_column: int | None = None
    user_stack: tuple[UserFrame, ...] = ()

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.function}: [{self.code}] {self.reason}\n    hint: {self.hint}"

    @property
    def excerpt(self) -> str:
        """The line with a caret under the expression."""
        return UserPosition(self.file, self.line, self.function, self.column, self.end_column).render()


@frozen
class GraphRecord:
    """One captured graph.

    Attributes:
        code: the graph as Python.
        operations: calls in it.
        inputs: placeholders in it.
        ops: the names of what is called, in order.
    """

    code: str
    operations: int
    inputs: int
    ops: tuple[str, ...] = ()


@frozen
class ProgramRecord:
    """One compiled program (a forward or a backward).

    Attributes:
        kind: "forward" or "backward".
        kernels: launches of generated kernels; those of a branch, or of a loop's step, count once.
        library_calls: library calls by name, with how often each is made, counted likewise.
        fused_operations: ATen operations that live in generated kernels.
        cached: whether it came from the disk cache.
        artifact: the program itself; `artifact.text()` prints it.
    """

    kind: str
    kernels: int
    library_calls: Mapping[str, int]
    fused_operations: int
    cached: bool
    artifact: Artifact

    @property
    def host_waits(self) -> tuple[str, ...]:
        """Where the host waits for the GPU in a call without CUDA graphs, with the reason; of those, see `Explanation.cuda_graphs`."""
        # Not at the top: most processes never ask.
        from flambeau_runtime import graphs

        return graphs.host_waits(self.artifact)


@frozen
class RepeatRecord:
    """Calls of a graph that were compiled once.

    Attributes:
        name: the class of the modules, or "nested_compile_region".
        calls: how many there are.
        operations: captured operations in one of them.
    """

    name: str
    calls: int
    operations: int

    def __str__(self) -> str:
        return f"{self.calls} calls of {self.name} ({self.operations} operations each)"


@frozen
class GuardRecord:
    """One assumption of a compiled entry.

    Attributes:
        kind: the class of the guard.
        expression: what is checked, Python-like.
        words: the same as a sentence.
        file, line: what made it necessary; "" and 0 where nothing in particular did.
    """

    kind: str
    expression: str
    words: str
    file: str = ""
    line: int = 0

    def __str__(self) -> str:
        return self.expression


@frozen
class FrameRecord:
    """One function that was looked at.

    Attributes:
        function, file, line: its qualified name and where it begins.
        graph: the number of its graph, from 0; None where it has none.
        entry: how many entries the code had before.
        recompiled: why it was compiled again: what each earlier entry did not fit for.
        skipped: why it runs in plain Python, or "".
        effects: how many changes outside of the graph are done after it.
        seconds: capture, and the backend's.
    """

    function: str
    file: str
    line: int
    graph: int | None
    entry: int
    recompiled: tuple[str, ...]
    skipped: str
    effects: int
    seconds: float


@define
class Recorder:
    """Collects the records of one region while it compiles."""

    graphs: list[GraphRecord] = Factory(list)
    breaks: list[BreakReason] = Factory(list)
    programs: list[ProgramRecord] = Factory(list)
    guards: list[GuardRecord] = Factory(list)
    frames: list[FrameRecord] = Factory(list)
    left: list[FrameRecord] = Factory(list)
    seconds: dict[str, float] = Factory(dict)
    eager_graphs: list[str] = Factory(list)
    cuda_graphs: list[GraphDecision] = Factory(list)
    repeats: list[RepeatRecord] = Factory(list)
    not_captured: str = ""
    #: For `insight/watch.py`: places of written inputs, and what steps through a graph's programs, one for each that was compiled.
    written: list[frozenset[int]] = Factory(list)
    plans: list[Callable[[], Callable[..., Any]]] = Factory(list)
    #: Its `WatchedGraph`s: that module imports this one.
    watched: list[Any] = Factory(list)
    #: Compiled graphs with their constants, as `stack.py` has them.
    built: list[Any] = Factory(list)

    def left_to_python(self, code: CodeType, reason: str) -> None:
        """Count a function that is not looked at: a library's, a generator."""
        self.left.append(
            FrameRecord(code.co_qualname, code.co_filename, code.co_firstlineno, None, 0, (), reason, 0, 0.0)
        )

    def ran_in_eager(self, reason: str) -> None:
        """Count a graph that runs in eager because it holds something that is not modelled."""
        self.eager_graphs.append(reason)

    def spent(self, stage: str, seconds: float) -> None:
        """Add wall-clock seconds to a stage."""
        self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds
