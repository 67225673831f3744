"""Errors of the public API: each has a stable code, says what was given, what exists, and what to do.

Two roots: `UserError` (the call is wrong; fix the call) and `InternalError` (ours; report it).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import ClassVar

import flambeau_capture
from flambeau_capture import BackendError, GraphBreakError

__all__ = [
    "BackendError",
    "BackendLookupError",
    "DuplicateBackend",
    "FlambeauError",
    "GraphBreakError",
    "GraphNotCompiled",
    "InternalError",
    "InvalidOption",
    "NotHereYet",
    "UnknownName",
    "UnsupportedEnvironment",
    "UserError",
]


class FlambeauError(Exception):
    """Base of every error that the api package raises."""

    code: ClassVar[str] = "FBA000"
    hint = ""

    def __str__(self) -> str:
        text = f"[{self.code}] {super().__str__()}"
        return f"{text}\n  hint: {self.hint}" if self.hint else text


class UserError(FlambeauError):
    """The call or its arguments are wrong."""


class InternalError(FlambeauError, flambeau_capture.InternalError):
    """flambeau itself is at fault: a stage behind capture failed. What it raised is the cause."""

    code = "FBA001"
    hint = (  # type: ignore[misc]  # an instance's in one base, the class's in the other
        "please report this with the output of FLAMBEAU_LOGS=graph_code,output_code; backend='eager' should run the program"
    )
    __str__ = flambeau_capture.InternalError.__str__


class GraphNotCompiled(BackendError):
    """`fullgraph=True` was asked for, and no program can be made of the captured graph."""

    code = "FBA107"


class UnknownName(UserError, ValueError):
    """A backend, mode, option or log name that does not exist.

    Args:
        kind: what was named ("backend", "mode", "option", "log artifact").
        given: the name in the call.
        known: the names that exist; the nearest one becomes the hint.
    """

    code = "FBA101"

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

    code = "FBA106"

    def __init__(self, kind: str, given: str) -> None:
        UserError.__init__(self, f"{kind} {given!r} of torch.compile is not here yet")
        self.hint = "leave it out; docs/guide/surface.md lists what is here"


class InvalidOption(UserError, TypeError):
    """An option has a value of the wrong type, or two arguments exclude each other."""

    code = "FBA102"

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class DuplicateBackend(UserError, ValueError):
    """A backend name is registered twice with different functions."""

    code = "FBA103"


class BackendLookupError(UserError, TypeError):
    """What was given as a backend is neither a name nor a callable, has no name to register, or cannot be imported."""

    code = "FBA104"

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class UnsupportedEnvironment(UserError, ImportError):
    """The Python or torch that runs is outside the supported range."""

    code = "FBA105"
    hint = "flambeau supports CPython 3.11 - 3.13 with torch 2.11 - 2.15 on Linux x86-64"
