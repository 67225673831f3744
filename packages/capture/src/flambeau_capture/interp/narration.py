"""What a trace does, told while it goes on: the lines, the calls and the instructions of the program, as the artifacts `trace_source`, `trace_call` and
`trace_bytecode` show them.

In: each instruction before it is run, with the frame that it is of. Out: events, for the artifacts that were asked for by name; where none was, `narrator_for` gives
None, and no instruction costs more. A frame that is traced anew, up to what breaks it, is told of again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import log
from ..library import linecache
from ..values.base import NULL

if TYPE_CHECKING:
    from ..bytecode.model import Instruction
    from .frame import Frame

_ARTIFACTS = ("trace_source", "trace_call", "trace_bytecode")
_CALLS = ("CALL", "CALL_KW", "CALL_FUNCTION_EX")


def narrator_for() -> Narrator | None:
    """Who tells of a trace that begins now, if somebody asked for it."""
    asked = frozenset(name for name in _ARTIFACTS if log.logger.asks_for(name))
    return Narrator(asked) if asked else None


class Narrator:
    """Tells of one trace.

    Args:
        asked: the artifacts that are shown.
    """

    def __init__(self, asked: frozenset[str]) -> None:
        self.asked = asked
        self.frame: Frame | None = None
        self.line = 0

    def __call__(self, frame: Frame) -> None:
        """Tell of the instruction that a frame is at."""
        instruction = frame.instructions[frame.index]
        line = instruction.position.line
        if line is not None and (frame is not self.frame or line != self.line):
            self.frame, self.line = frame, line
            if "trace_source" in self.asked:
                self._say(log.TRACE_SOURCE, "trace_source", frame, line, source=_source(frame, line).strip())
        if "trace_call" in self.asked and line is not None and instruction.name in _CALLS:
            self._say(log.TRACE_CALL, "trace_call", frame, line, source=_underlined(frame, line, instruction))
        if "trace_bytecode" in self.asked:
            stack = ", ".join("NULL" if value is NULL else value.describe() for value in frame.stack)
            log.logger.debug(
                log.TRACE_BYTECODE, artifact="trace_bytecode", instruction=_words(instruction), stack=f"[{stack}]"
            )

    def _say(self, event: str, artifact: str, frame: Frame, line: int, *, source: str) -> None:
        code = frame.code
        log.logger.debug(
            event, artifact=artifact, function=code.co_qualname, at=f"{code.co_filename}:{line}", source=source
        )


def _source(frame: Frame, line: int) -> str:
    return linecache.getline(frame.code.co_filename, line, frame.globals).rstrip("\n")


def _underlined(frame: Frame, line: int, instruction: Instruction) -> str:
    """The line, and below it a mark under the expression; under a call of several lines what of it is in the first."""
    at, text = instruction.position, _source(frame, line)
    if at.column is None or not text:
        return text.strip()
    # Columns count bytes.
    raw = text.encode()
    end = at.end_column if at.end_line == line and at.end_column is not None else len(raw)
    before, under = raw[: at.column].decode(errors="replace"), raw[at.column : end].decode(errors="replace")
    return f"{text}\n{' ' * len(before)}{'^' * max(1, len(under))}"


def _words(instruction: Instruction) -> str:
    parts = [instruction.name]
    if instruction.value is not None:
        parts.append(
            repr(instruction.value)
            if isinstance(instruction.value, (str, int, float, tuple))
            else type(instruction.value).__name__
        )
    elif instruction.arg:
        parts.append(str(instruction.arg))
    if instruction.target is not None:
        parts.append(f"to {instruction.target}")
    return " ".join(parts)
