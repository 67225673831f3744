"""The program's hooks on saved tensors (`torch.autograd.graph.saved_tensors_hooks`), and what they raise.

In: what runs beside the program, an error, a graph. Out: a context in which they are not called; whether it is an error of theirs; a graph
that marks these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor


@contextmanager
def hooks_set_aside() -> Iterator[None]:
    """The hooks are not shown what operations in this context save."""
    table, waiting = torch._C._autograd, []
    while (pair := table._top_saved_tensors_default_hooks(True)) is not None:
        waiting.append(pair)
        table._pop_saved_tensors_default_hooks()
    try:
        yield
    finally:
        for pair in reversed(waiting):
            table._push_saved_tensors_default_hooks(*pair)


def raised_in_hook(error: BaseException) -> bool:
    """Whether a hook or another function of the program's raised it, and no operation of a graph. A backend whose graphs save tensors says so by an attribute of this name."""
    return bool(getattr(error, "raised_in_hook", False))


def with_marked_hooks(compiled: Callable[..., Any]) -> Callable[..., Any]:
    """`compiled`, which autograd records operation by operation: what a hook raises meanwhile is known by `raised_in_hook`."""

    def call(*inputs: Any) -> Any:
        pair = torch._C._autograd._top_saved_tensors_default_hooks(True)
        if pair is None:
            return compiled(*inputs)
        pack, unpack = pair

        def marking(tensor: Tensor) -> Any:
            try:
                return pack(tensor)
            except Exception as error:
                vars(error)["raised_in_hook"] = True
                raise

        with torch.autograd.graph.saved_tensors_hooks(marking, unpack):
            return compiled(*inputs)

    return call
