"""Errors of capture: `CaptureError` is the user's to fix, `InternalError` is ours.

Every error has a stable `code`, a message for this case, a hint, and the user's frames where they are known; `error_root.py` says how they are told.
Subclasses also derive from the nearest built-in, so `except RuntimeError` keeps working.
"""

from __future__ import annotations

from typing import ClassVar

from .error_root import FlambeauError, UserPosition

__all__ = ["FlambeauError", "UserPosition"]


class FlambeauCaptureError(FlambeauError):
    """Root of everything capture raises."""

    code: ClassVar[str] = "FB100"


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


class CompileCallbackError(CaptureError, RuntimeError):
    """A function that the program has called at each compile raised."""

    code = "FB109"
    hint = "such a function is told of a compile and has no say in it"


class ForbiddenCallError(CaptureError, RuntimeError):
    """Compiled code calls what is marked with `forbid_in_graph`."""

    code = "FB110"
    hint = "call it outside of the compiled function; where a graph break is enough, use disallow_in_graph"


class SideEffectError(CaptureError, RuntimeError):
    """Compiled code changes an object outside of it, and `side_effect_replay_policy` makes an error of that."""

    code = "FB111"
    hint = "return the value and store it outside of the compiled function, or set side_effect_replay_policy to 'warn'"


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
