"""What a traced region does around each compile of a frame, and who is being traced where.

In: capture's frames and records, the stack's programs. Out: records for each writer that is asked for: a trace (`writer.py`), a debug folder (`folders.py`). Which compile is going on stands in a context variable: the events of
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
from flambeau_capture.guards.explain import describe
from flambeau_capture.guards.words import sentence

from .. import log
from ..targets import owner_name
from .events import take
from .folders import Folders
from .positions import files_of, positions_of
from .writer import Writer

if TYPE_CHECKING:
    from ..options import Options

DEFAULT_FOLDER = "flambeau_trace"


@define
class Session:
    """The trace of one compile of one frame while it goes on. `measures`: kernels are timed, for a trace."""

    writers: tuple[Writer | Folders, ...]
    compile_id: str
    frame: FrameInfo | None = None
    pictures: Path | None = None
    measures: bool = True
    program: ContextVar[str] = field(factory=lambda: ContextVar("flambeau_program", default=""))

    def write(self, kind: str, **fields: Any) -> None:
        """Append a record about this compile."""
        for writer in self.writers:
            writer.write(kind, self.compile_id, **fields)

    def source(self, path: str) -> None:
        """Append the text of a source file, the first time that it is named."""
        for writer in self.writers:
            writer.source(path)

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
            self.source(path)
        self.write("graph", name=name, program=program, text=graph.graph.python_code("self").src.strip(), nodes=nodes)


_ACTIVE: ContextVar[Session | None] = ContextVar("flambeau_trace", default=None)
_writers: dict[tuple[type, Path], Writer | Folders] = {}
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

    writers: tuple[Writer | Folders, ...]
    name: str | None
    pictures: Path | None = None
    saves_inputs: bool = False

    @property
    def folders(self) -> Folders | None:
        """The debug folders, where they are asked for."""
        return next((writer for writer in self.writers if isinstance(writer, Folders)), None)

    @contextmanager
    def around(self, frame: FrameInfo) -> Iterator[None]:
        """One compile of a frame: begin, end, and everything in between."""
        measures = any(isinstance(writer, Writer) for writer in self.writers)
        session = Session(self.writers, frame.compile_id, frame, self.pictures, measures)
        code = frame.code
        session.source(code.co_filename)
        session.write(
            "frame_begin",
            function=code.co_qualname,
            file=code.co_filename,
            line=code.co_firstlineno,
            entry=frame.entries,
            region=self.name or "",
            owner=owner_name(frame),
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
            session.frame = (
                None  # compiled graphs keep the session: for later records, not for the values of the first call
            )

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
    """The trace and the debug folders that a region's options ask for, or None."""
    wanted: list[tuple[type[Writer | Folders], Path]] = []
    if options["trace.enabled"] or options["trace.debug_dir"]:
        wanted.append((Writer, Path(options["trace.debug_dir"] or DEFAULT_FOLDER).absolute()))
    pictures = wanted[0][1] if wanted and options["trace.graph_diagram"] else None
    if options["compile_debug"] or options["debug_folder"]:
        wanted.append((Folders, Path(options["debug_folder"] or options["compile_debug_dir"]).absolute()))
    if not wanted:
        return None
    with _guard:
        writers = tuple(_writers.setdefault((kind, path), kind(path)) for kind, path in wanted)
    log.listen(_take)
    return RegionTrace(writers, name, pictures, bool(options["compile_debug_save_real"]))


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
            session.source(file)
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
        rows = [
            {
                "text": describe(guard),
                "words": sentence(guard),
                "seconds": seconds,
                "position": list(guard.position or ()),
            }
            for guard, seconds in zip(record.guards, taken, strict=True)
        ]
        session.write("guards", guards=rows)


def _take(method: str, event: Mapping[str, Any]) -> None:
    session = _ACTIVE.get()
    if session is not None:
        with spared(session):
            take(session, session.program.get(), method, event)
