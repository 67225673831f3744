"""What `GraphBuilder` asks of nodes, of what they call, and of errors.

In: nodes, targets with their arguments, exceptions. Out: whether a node only reads a size, how a function is printed or named, an error's first line.
"""

from __future__ import annotations

from operator import getitem
from operator import pow as power
from typing import TYPE_CHECKING, Any

import torch
import torch.fx

if TYPE_CHECKING:
    from collections.abc import Sequence

SYMBOLS = (torch.SymInt, torch.SymFloat, torch.SymBool)
_PURE_READS = frozenset(("size", "stride", "storage_offset", "numel", "dim"))


def as_printed(target: Any, args: Sequence[Any]) -> Any:
    """The function that a graph module can print: it writes `-2 ** n` for a negative base, which Python reads as `-(2 ** n)`."""
    negative = target is power and isinstance(args[0], int | float | complex) and repr(args[0]).startswith("-")
    return pow if negative else target


def as_given(value: Any, real: Any) -> Any:
    """An input's fake without the history that the program gave it by a write."""
    if isinstance(value, torch.Tensor) and value.requires_grad and not real.requires_grad:
        return value.detach()
    return value


_PLAIN = (bool, int, float)


def is_pure_read(node: torch.fx.Node) -> bool:
    """Whether a node only reads a size or an item, or computes a number: it goes where nobody uses it."""
    if node.op == "call_method":
        # The number in a tensor of constants (`torch.tensor(0.5).log2().item()`) is known while tracing, and is none to fakes of others.
        return node.target in _PURE_READS or (node.target == "item" and type(node.meta.get("val")) in _PLAIN)
    if node.op != "call_function":
        return False
    if node.target is getitem:
        # An index that is a tensor, or a list that becomes one, raises where it is out of bounds.
        index: list[torch.fx.Node] = []
        torch.fx.map_arg(node.args[1], index.append)
        parts = node.args[1] if isinstance(node.args[1], tuple) else (node.args[1],)
        listed = any(isinstance(part, list) for part in parts)
        return not listed and not any(isinstance(used.meta.get("val"), torch.Tensor) for used in index)
    return isinstance(node.meta.get("val"), SYMBOLS)


def is_data_dependent(error: BaseException) -> bool:
    """By name, so that a compile with static shapes does not import the shape environment."""
    return type(error).__name__ == "GuardOnDataDependentSymNode"


def name_of(target: Any) -> str:
    """A function's own name, or that of a method."""
    return target if isinstance(target, str) else getattr(target, "__name__", str(target))


def first_line(error: BaseException) -> str:
    """What an error says, as far as it fits into a line."""
    return str(error).strip().split("\n", 1)[0][:300]
