"""Functions of torch that are under their names no more.

In: a captured graph. Out: `hold_replaced`, after which the graph's code calls the functions that its nodes hold. FX writes a function of
torch by its dotted name, and there a program may have put its own, which calls the one that was captured.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import torch
from torch import fx
from torch.fx.node import _get_qualified_name

from ..patches import is_stood_in_for


def _is_under_its_name(function: Any) -> bool:
    """Whether code that calls a function of torch by its name calls this one, now and after the compiler's stages."""
    if is_stood_in_for(function):
        return False
    if isinstance(function, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        return True
    try:
        first, *names = _get_qualified_name(function).split(".")
    except AttributeError:  # a method of tensors that is theirs no more
        return False
    return first != "torch" or reduce(lambda owner, name: getattr(owner, name, None), names, torch) is function


def hold_replaced(graph: fx.Graph) -> bool:
    """Put a function of ours, which FX holds itself, in the place of each that is not under its name; whether there was one."""
    replaced = [n for n in graph.nodes if n.op == "call_function" and not _is_under_its_name(n.target)]
    for node in replaced:
        node.target = _holding(node.target)
    return bool(replaced)


def _holding(function: Callable[..., Any]) -> Callable[..., Any]:
    def held(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    held.__name__ = held.__qualname__ = getattr(function, "__name__", "held")
    return held
