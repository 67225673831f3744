"""Errors of capture: `CaptureError` is the user's to fix, `InternalError` is ours.

Every error has a stable `code`, a message for this case, a hint, and the user's position where one is known::

    FB101: the frame cannot be captured as one graph: data-dependent branch
      model.py:12 in forward
          if x.sum() > 0:
             ^^^^^^^^^^^
      hint: compute both sides and choose with torch.where

Subclasses also derive from the nearest built-in, so `except RuntimeError` keeps working.
"""

from __future__ import annotations

from typing import ClassVar

from attrs import frozen

from .library import linecache


@frozen
class UserPosition:
    """A place in the user's code; columns are UTF-8 byte offsets as CPython keeps them, or None."""

    file: str
    line: int
    function: str = ""
    column: int | None = None
    end_column: int | None = None

    def render(self) -> str:
        """The line, its text and a caret under the expression."""
        head = f"  {self.file}:{self.line}" + (f" in {self.function}" if self.function else "")
        text = linecache.getline(self.file, self.line).rstrip("\n")
        if not text.strip():
            return head
        indent = len(text) - len(text.lstrip())
        shown = f"{head}\n      {text.strip()}"
        if self.column is None:
            return shown
        encoded = text.encode()
        start = len(encoded[: self.column].decode(errors="ignore")) - indent
        end = len(text.rstrip()) - indent
        if self.end_column is not None and self.end_column > self.column:
            end = min(end, len(encoded[: self.end_column].decode(errors="ignore")) - indent)
        return f"{shown}\n      {' ' * max(start, 0)}{'^' * max(end - max(start, 0), 1)}"


class FlambeauCaptureError(Exception):
    """Root of everything capture raises. Attributes: `code`, `message`, `hint`, `position`."""

    code: ClassVar[str] = "FB100"
    hint: ClassVar[str] = ""

    def __init__(self, message: str, *, hint: str | None = None, position: UserPosition | None = None) -> None:
        self.message = message
        self.hint_text = self.hint if hint is None else hint
        self.position = position
        super().__init__(message)

    def __str__(self) -> str:
        parts = [f"{self.code}: {self.message}"]
        if self.position is not None:
            parts.append(self.position.render())
        if self.hint_text:
            parts.append(f"  hint: {self.hint_text}")
        return "\n".join(parts)


class CaptureError(FlambeauCaptureError):
    """The user's program or request cannot be honoured as asked."""

    code = "FB100"


class GraphBreakError(CaptureError, RuntimeError):
    """`fullgraph=True` was asked for and a construct cannot be captured in one graph."""

    code = "FB101"
    hint = "drop fullgraph=True to let the construct run in Python, or rewrite it as the reason says"


class RecompileLimitError(CaptureError, RuntimeError):
    """`fullgraph=True` or an error policy was asked for and one code object needs more entries than the region allows."""

    code = "FB102"
    hint = "mark the changing sizes dynamic, or raise recompile_limit"


class BackendError(CaptureError, RuntimeError):
    """A backend raised, or returned something that cannot be called."""

    code = "FB103"


class UnsupportedPythonError(CaptureError, ImportError):
    """This CPython is not one of the supported versions."""

    code = "FB104"
    hint = "use CPython 3.11, 3.12 or 3.13"


class NativeModuleError(CaptureError, ImportError):
    """The native module is missing or was built for another torch."""

    code = "FB105"
    hint = "rebuild it: python tools/build_native.py --inplace capture, or reinstall flambeau-capture without build isolation"


class DynamicShapeError(CaptureError, RuntimeError):
    """A dimension marked dynamic was specialised by the program."""

    code = "FB106"


class OptionError(CaptureError, ValueError):
    """An option, or the environment variable that stands for it, has a value that it does not take."""

    code = "FB107"


class CompileRefusedError(CaptureError, RuntimeError):
    """The stance "fail_on_recompile" is taken and a call needs something to be compiled."""

    code = "FB108"
    hint = "call it with such inputs before the stance is taken, or take the stance 'eager_on_recompile'"


class InternalError(FlambeauCaptureError, AssertionError):
    """A fault of ours: the message says which invariant broke."""

    code = "FB190"
    hint = "this is a bug in flambeau; backend='eager' narrows it down"


class GuardBuildError(InternalError):
    """A guard spec that the native tree cannot express."""

    code = "FB191"


class GuardSelfCheckError(InternalError):
    """Fresh guards do not hold on the very frame they were made from."""

    code = "FB192"
