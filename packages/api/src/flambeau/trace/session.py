"""What a traced region does around each compile of a frame, and who is being traced where.

In: capture's frames and records, the stack's programs. Out: records of a `Writer`. Which compile is going on stands in a context variable: the events of
all packages that come up meanwhile are part of its trace (`events.py`). Where nothing is traced, `active()` is None, and nothing else is asked.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import define, field
from torch import fx

from flambeau_capture import CompileRecord, FrameInfo
from flambeau_capture.guards.cost import guard_seconds

from .. import log
from .events import take
from .positions import files_of, positions_of
from .writer import Writer

if TYPE_CHECKING:
    from ..options import Options

DEFAULT_FOLDER = "flambeau_trace"


@define
class Session:
    """The trace of one compile of one frame while it goes on."""

    writer: Writer
    compile_id: str
    frame: FrameInfo | None = None
    diagrams: bool = False
    program: ContextVar[str] = field(factory=lambda: ContextVar("flambeau_program", default=""))

    def write(self, kind: str, **fields: Any) -> None:
        """Append a record about this compile."""
        self.writer.write(kind, self.compile_id, **fields)

    @contextmanager
    def part(self, program: str) -> Iterator[None]:
        """What comes up inside is about the forward, or the backward."""
        token = self.program.set(program)
        try:
            yield
        finally:
            self.program.reset(token)

    def graph(self, name: str, program: str, graph: fx.GraphModule) -> None:
        """Write a graph down, with the user's positions of its nodes, and the sources that those name."""
        nodes = positions_of(graph)
        for path in files_of(nodes):
            self.writer.source(path)
        self.write("graph", name=name, program=program, text=graph.graph.python_code("self").src.strip(), nodes=nodes)


_ACTIVE: ContextVar[Session | None] = ContextVar("flambeau_trace", default=None)
_writers: dict[Path, Writer] = {}
_guard = threading.Lock()


@contextmanager
def spared(session: Session) -> Iterator[None]:
    """What goes wrong in writing a trace is part of the trace, and spares the program."""
    try:
        yield
    except Exception as error:
        session.write(
            "log",
            event="trace failed",
            level="warning",
            artifact="",
            program="",
            fields={"error": f"{type(error).__name__}: {error}"},
        )


def active() -> Session | None:
    """The compile that is going on in this thread, if it is traced."""
    return _ACTIVE.get()


@contextmanager
def part(program: str) -> Iterator[None]:
    """`Session.part` of the compile that is going on; nothing where none is traced."""
    session = _ACTIVE.get()
    if session is None:
        yield
        return
    with session.part(program):
        yield


@define
class RegionTrace:
    """What `flambeau.compile` gives capture for a region that is traced."""

    writer: Writer
    name: str | None
    diagrams: bool

    @contextmanager
    def around(self, frame: FrameInfo) -> Iterator[None]:
        """One compile of a frame: begin, end, and everything in between."""
        session = Session(self.writer, frame.compile_id, frame, self.diagrams)
        code = frame.code
        self.writer.source(code.co_filename)
        session.write(
            "frame_begin",
            function=code.co_qualname,
            file=code.co_filename,
            line=code.co_firstlineno,
            entry=frame.entries,
            region=self.name or "",
            misses=list(frame.misses),
        )
        token = _ACTIVE.set(session)
        try:
            yield
        finally:
            _ACTIVE.reset(token)
            raised = sys.exception()
            error = "" if raised is None else f"{type(raised).__name__}: {raised}"
            session.write("frame_end", error=error)

    def observed(self, observer: Callable[[CompileRecord], None]) -> Callable[[CompileRecord], None]:
        """`observer`, with what it is told in the trace as well."""

        def observe(record: CompileRecord) -> None:
            observer(record)
            session = _ACTIVE.get()
            if session is not None:
                with spared(session):
                    _write_record(session, record)

        return observe


def region_trace(options: Options, name: str | None) -> RegionTrace | None:
    """The trace that a region's options ask for, or None."""
    folder = options["trace.debug_dir"]
    if not options["trace.enabled"] and not folder:
        return None
    path = Path(folder or DEFAULT_FOLDER).absolute()
    with _guard:
        writer = _writers.setdefault(path, Writer(path))
    log.listen(_take)
    return RegionTrace(writer, name, bool(options["trace.graph_diagram"]))


def _write_record(session: Session, record: CompileRecord) -> None:
    session.write(
        "frame",
        function=record.code.co_qualname,
        graph=record.graph is not None,
        operations=record.operations,
        skipped=record.skipped,
        trace_seconds=record.trace_seconds,
        backend_seconds=record.backend_seconds,
    )
    for found in record.breaks:
        for file in (found.file, *(at[0] for at in found.stack)):
            session.writer.source(file)
        session.write(
            "break",
            code=found.code,
            reason=found.reason,
            hint=found.hint,
            file=found.file,
            line=found.line,
            function=found.function,
            stack=[list(at[:3]) for at in found.stack],
        )
    if record.guards and session.frame is not None:
        frame = session.frame
        taken = guard_seconds(record.guards, frame.code, (frame.locals, frame.globals, frame.builtins))
        rows = [{"text": str(guard), "seconds": seconds} for guard, seconds in zip(record.guards, taken, strict=True)]
        session.write("guards", guards=rows)


def _take(method: str, event: Mapping[str, Any]) -> None:
    session = _ACTIVE.get()
    if session is not None:
        with spared(session):
            take(session, session.program.get(), method, event)
