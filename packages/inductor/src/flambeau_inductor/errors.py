"""Errors of inductor: ``CompileError`` is the user's to fix, ``InternalError`` is ours.

Each has a stable ``code``, a message for this case and a hint; context ("while lowering aten.mm") is added on the way up with
``add_context``.
"""

from __future__ import annotations

from typing import ClassVar


class FlambeauInductorError(Exception):
    """Root of everything inductor raises. Attributes: ``code``, ``message``, ``hint_text``, ``context``."""

    code: ClassVar[str] = "FB300"
    hint: ClassVar[str] = ""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        self.message = message
        self.hint_text = self.hint if hint is None else hint
        self.context: list[str] = []
        super().__init__(message)

    def add_context(self, where: str) -> None:
        """Say what was being done, innermost first."""
        self.context.append(where)

    def __str__(self) -> str:
        parts = [f"{self.code}: {self.message}", *(f"  while {where}" for where in self.context)]
        if self.hint_text:
            parts.append(f"  hint: {self.hint_text}")
        return "\n".join(parts)


class CompileError(FlambeauInductorError):
    """The graph or the options cannot be honoured as given."""

    code = "FB300"


class OptionError(CompileError, ValueError):
    """An option that does not exist or has a value that is not allowed."""

    code = "FB301"


class UnsupportedGraphError(CompileError, NotImplementedError):
    """The graph holds something that neither loops nor library calls can express."""

    code = "FB302"
    hint = "backend='aot_eager' runs the graph without generated kernels"


class InternalError(FlambeauInductorError, AssertionError):
    """A fault of ours: the message says which invariant broke."""

    code = "FB390"
    hint = "this is a bug in flambeau; backend='aot_eager' narrows it down"


class VerifyError(InternalError):
    """An IR that breaks its own rules; the message shows the operations around the fault."""

    code = "FB391"


class LoweringError(InternalError):
    """A lowering rule failed on an op that it said it takes."""

    code = "FB392"
