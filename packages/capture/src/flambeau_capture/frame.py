"""What crosses the frame hook: the frame seen by the compiler, and the compiler's answer.

In: a frame that is about to run. Out: `RunGraph`, `RunCode`, `Skip` or `SkipAlways`, which `hook.py` hands to the native cache.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import CellType, CodeType, FunctionType
from typing import Any

from attrs import Factory, frozen

from .guards.spec import GuardSpec
from .sources.source import Source


@frozen(eq=False)
class FrameInfo:
    """A frame before its first instruction.

    `locals` maps argument, cell and free variable names to values (cells unwrapped; unset ones are absent); `closure` are the
    function's cells in the order of `code.co_freevars`; `entries` counts the entries this region already holds for `code`; `replaced` names
    what the program has put its own in the place of (`replaced_names.py`).
    """

    code: CodeType
    locals: Mapping[str, Any]
    globals: dict[str, Any]
    builtins: Mapping[str, Any]
    closure: tuple[CellType, ...] | None
    function: FunctionType
    entries: int = 0
    replaced: tuple[str, ...] = ()
    #: The number of the code object in its process and of the entry, as in "0/1".
    compile_id: str = ""
    #: What the program tells of a recompile.
    contexts: list[str] = Factory(list)
    #: Why each entry of the code does not fit, in words.
    misses: list[str] = Factory(list)
    #: What traced the frame. These refer to themselves, and to objects of the program: see `let_go`.
    traces: list[Any] = Factory(list)
    #: Names of settings that hold for the frame whatever scopes the program is in.
    fixed: set[str] = Factory(set)

    def let_go(self) -> None:
        """Empty what traced the frame, once it is answered for: a generator of the program that waits inside of a `with` would otherwise be closed,
        and the mode put back, when Python's collector finds it."""
        for trace in self.traces:
            vars(trace).clear()


@frozen(eq=False)
class RunCode:
    """Run `code` in place of the frame's code whenever `guards` hold.

    `code` has the frame code's arguments, cells and free variables (same names and order); further locals may follow.
    """

    code: CodeType
    guards: tuple[GuardSpec, ...]
    keep_alive: tuple[Any, ...] = ()


@frozen(eq=False)
class RunGraph:
    """The frame is one graph and nothing else: call `compiled(*inputs)` and return its outputs, with no interpreter in between.

    `outputs` says what the frame returns: an int `i` returns `result[i]` itself, a tuple of ints a tuple, a list of ints a list, and
    a `None` among them the constant None.
    """

    compiled: Callable[..., Any]
    inputs: tuple[Source, ...]
    outputs: int | tuple[int | None, ...] | list[int | None] | None
    guards: tuple[GuardSpec, ...]
    keep_alive: tuple[Any, ...] = ()


@frozen
class Skip:
    """Run this call in eager; frames it calls are still looked at. Other calls of the same code will ask again.

    Attributes:
        raises: the program raises in this call, so that nothing is captured until the code is called again.
    """

    raises: bool = False


@frozen
class SkipAlways:
    """Never ask again about this code in this region; with `recursive`, nor about frames called from it."""

    recursive: bool = False


@frozen
class Later:
    """Run this call in eager, with everything that it calls; ask again at the next."""


@frozen(eq=False)
class Once:
    """Run this call as `answer` says; ask again at the next."""

    answer: RunCode | RunGraph


Answer = RunCode | RunGraph | Skip | SkipAlways | Later | Once
Callback = Callable[[FrameInfo], Answer]
