"""Errors of the public API: each has a stable code, says what was given, what exists, and what to do.

Two roots: `UserError` (the call is wrong; fix the call) and `InternalError` (ours; report it).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

import flambeau_capture
from flambeau_capture import BackendError, GraphBreakError
from flambeau_capture.error_root import FlambeauError, UserPosition, without_our_frames

__all__ = [
    "ArtifactError",
    "BackendError",
    "BackendLookupError",
    "DuplicateBackend",
    "FlambeauError",
    "GraphBreakError",
    "GraphNotCompiled",
    "InternalError",
    "InvalidOption",
    "NotFinite",
    "NotHereYet",
    "NotRecorded",
    "TraceUnreadable",
    "UnknownName",
    "UnsupportedEnvironment",
    "UserError",
    "UserPosition",
    "without_our_frames",
]


class UserError(FlambeauError):
    """The call or its arguments are wrong."""


class InternalError(flambeau_capture.InternalError):
    """flambeau itself is at fault: a stage behind capture failed. What it raised is the cause."""

    code = "FB090"
    hint = "please report this with the output of FLAMBEAU_LOGS=graph_code,output_code; backend='eager' should run the program"


class GraphNotCompiled(BackendError):
    """`fullgraph=True` was asked for, and no program can be made of the captured graph."""

    code = "FB007"


class UnknownName(UserError, ValueError):
    """A backend, mode, option or log name that does not exist.

    Args:
        kind: what was named ("backend", "mode", "option", "log artifact").
        given: the name in the call.
        known: the names that exist; the nearest one becomes the hint.
    """

    code = "FB001"

    def __init__(self, kind: str, given: object, known: Iterable[str]) -> None:
        names = sorted(known)
        super().__init__(f"unknown {kind} {given!r}; there are: {', '.join(names)}")
        nearest = difflib.get_close_matches(str(given), names, n=1, cutoff=0.4)
        self.hint = f"did you mean {nearest[0]!r}?" if nearest else ""


class NotHereYet(UnknownName):
    """An option, setting, log artifact or backend that torch.compile has and flambeau has not yet.

    Args:
        kind: what was named.
        given: the name in the call.
    """

    code = "FB006"

    def __init__(self, kind: str, given: str) -> None:
        UserError.__init__(self, f"{kind} {given!r} of torch.compile is not here yet")
        self.hint = "leave it out; docs/guide/surface.md lists what is here"


class NotFinite(UserError, ArithmeticError):
    """A result of a compiled program is nan or infinite, and the option `nan_asserts` is on."""

    code = "FB010"
    hint = "drop nan_asserts to go on; options={'executor': 'python'} with FLAMBEAU_LOGS=output_code shows the program step by step"


class NotRecorded(UserError, RuntimeError):
    """A part of a program cannot be a CUDA graph, and the option `triton.cudagraph_or_error` is on."""

    code = "FB011"
    hint = (
        "FLAMBEAU_LOGS=cudagraphs shows every decision; drop triton.cudagraph_or_error to run that part without a graph"
    )


class InvalidOption(UserError, TypeError):
    """An option has a value of the wrong type, or two arguments exclude each other."""

    code = "FB002"


class DuplicateBackend(UserError, ValueError):
    """A backend name is registered twice with different functions."""

    code = "FB003"


class BackendLookupError(UserError, TypeError):
    """What was given as a backend is neither a name nor a callable, has no name to register, or cannot be imported."""

    code = "FB004"


class ArtifactError(UserError, ValueError):
    """A compiled graph cannot be saved, or what is loaded is none that this installation can run."""

    code = "FB013"

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class TraceUnreadable(UserError, ValueError):
    """A folder or file that `flambeau report` was given holds no trace, or one that another version wrote."""

    code = "FB012"


class UnsupportedEnvironment(UserError, ImportError):
    """The Python or torch that runs is outside the supported range."""

    code = "FB005"
    hint = "flambeau supports CPython 3.11 - 3.13 with torch 2.11 - 2.15 on Linux x86-64"
