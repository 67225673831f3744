"""How commands fail: one line that says what is wrong with what they were given.

In: an exception. Out: `BadInput`, exit status 2, whose text names the place in the user's code where there is one.
"""

from __future__ import annotations

import traceback

import click

from ..log_names import PACKAGES

#: Whose frames are not the user's.
_LIBRARIES = frozenset((*PACKAGES, "torch", "click", "runpy", "importlib", "json"))


class BadInput(click.ClickException):
    """What was given on the command line, or what it names, is wrong."""

    exit_code = 2


def one_line(error: BaseException) -> str:
    """What went wrong, without a traceback."""
    words = str(error).strip() or type(error).__name__
    return "; ".join(line.strip() for line in words.splitlines() if line.strip())


def raised(what: str, error: BaseException) -> BadInput:
    """Code of the user's raised: what it was, and the innermost line that is the user's."""
    found = BadInput(f"{what} raised {type(error).__name__}: {one_line(error)}{_place(error)}")
    found.__cause__ = error
    return found


def _place(error: BaseException) -> str:
    if isinstance(error, SyntaxError) and error.filename:
        return f" ({error.filename}:{error.lineno})"
    mine = [
        (frame.f_code, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if str(frame.f_globals.get("__name__", "")).lstrip("_").partition(".")[0] not in _LIBRARIES
    ]
    return f" ({mine[-1][0].co_filename}:{mine[-1][1]} in {mine[-1][0].co_name})" if mine else ""
