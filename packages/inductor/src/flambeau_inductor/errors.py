"""Errors of inductor: ``CompileError`` is the user's to fix, ``InternalError`` is ours.

Each has a stable ``code``, a message for this case and a hint; context ("while lowering aten.mm") is added on the way up with
``add_context``.
"""

from __future__ import annotations

from typing import ClassVar

from flambeau_runtime.error_root import FlambeauError


class FlambeauInductorError(FlambeauError):
    """Root of everything inductor raises."""

    code: ClassVar[str] = "FB300"


class CompileError(FlambeauInductorError):
    """The graph or the options cannot be honoured as given."""

    code = "FB300"


class OptionError(CompileError, ValueError):
    """An option that does not exist or has a value that is not allowed."""

    code = "FB307"


class ExtensionError(OptionError):
    """A lowering, decomposition or pattern that a program registers cannot be used: it names no functional operator, is there already, or failed."""

    code = "FB308"


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
