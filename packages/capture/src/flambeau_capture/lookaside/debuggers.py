"""Calls that start a debugger or a trace function.

In: `breakpoint()`, `set_trace()` of pdb and of what is built on bdb, `sys.settrace`. Out: a break that leaves the frame, and those that it was called from as far as
they would have been one graph, to plain Python: what is stepped through from there on is the program, line by line, with all of its variables.
"""

from __future__ import annotations

import builtins
import sys
from typing import TYPE_CHECKING

from ..replacements import replaces, replaces_later
from ..signals import GraphBreak

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..values.base import Tracer, Value


@replaces(builtins.breakpoint, sys.settrace, as_given=True)
def starts_tracing(t: Tracer, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
    raise GraphBreak(
        "unsupported-call",
        "a debugger or a trace function is started",
        "harmless: the functions that lead there run in plain Python, for you to step through; remove the call to compile them",
        whole=True,
    )


@replaces_later("pdb")
def _of_pdb() -> None:
    import pdb

    replaces(pdb.set_trace, as_given=True)(starts_tracing)
    if "set_trace" in vars(pdb.Pdb):
        replaces(pdb.Pdb.set_trace, as_given=True)(starts_tracing)


@replaces_later("bdb")
def _of_bdb() -> None:
    import bdb

    replaces(bdb.Bdb.set_trace, as_given=True)(starts_tracing)
