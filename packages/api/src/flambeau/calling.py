"""How a compiled graph is called: with its inputs one by one, or in one list that it empties (`_boxed_call`).

In: what a backend made. Out: the same, called by the other rule (`one_by_one`), or with something around its first call (`on_first_call`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from flambeau_capture.backend_call import is_boxed

AroundCall = Callable[[tuple[Any, ...]], AbstractContextManager[Any]]
"""Given the inputs, what a call runs inside of."""


def one_by_one(compiled: Callable[..., Any]) -> Callable[..., Any]:
    """`compiled`, called with its inputs as arguments."""
    return (lambda *inputs: compiled(list(inputs))) if is_boxed(compiled) else compiled


def on_first_call(compiled: Callable[..., Any], around: AroundCall) -> Callable[..., Any]:
    """`compiled`, whose first call runs inside of `around`. It is called by the same rule, and has the same attributes."""
    waiting: AroundCall | None = around

    def first(inputs: tuple[Any, ...], given: tuple[Any, ...]) -> Any:
        nonlocal waiting
        taken, waiting = waiting, None
        with taken(inputs) if taken is not None else nullcontext():  # None: another thread was first
            return compiled(*given)

    def call(*inputs: Any) -> Any:
        return compiled(*inputs) if waiting is None else first(inputs, inputs)

    def call_boxed(inputs: list[Any]) -> Any:
        return compiled(inputs) if waiting is None else first(tuple(inputs), (inputs,))

    made = call_boxed if is_boxed(compiled) else call
    return functools.update_wrapper(
        made, compiled, assigned=(), updated=("__dict__",) if hasattr(compiled, "__dict__") else ()
    )
