"""Tensors that contexts of `autograd.Function`s hold as attributes: autograd knows nothing of them, no hook on saved tensors sees them.

In: what a graph has returned, and what to put in the place of each such tensor. Each is asked for in an order that is the same whenever the graph runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.autograd.function import BackwardCFunction


def exchange_in_contexts(
    outputs: Iterable[Any], borders: Iterable[Any], exchange: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    """`borders`: nodes of autograd that are not the graph's any more."""
    pending = [t.grad_fn for t in outputs if isinstance(t, torch.Tensor) and t.grad_fn is not None]
    seen = set(borders)
    while pending:
        node = pending.pop()
        if node in seen:
            continue
        seen.add(node)
        if isinstance(node, BackwardCFunction):
            _exchanged(vars(node), exchange)
        pending += [child for child, _ in node.next_functions if child is not None]


def _exchanged(value: Any, exchange: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """A container keeps its identity, but for a tuple."""
    if isinstance(value, torch.Tensor):
        return exchange(value)
    if isinstance(value, dict):
        value.update({key: _exchanged(item, exchange) for key, item in value.items()})
    elif isinstance(value, list):
        value[:] = [_exchanged(item, exchange) for item in value]
    elif type(value) is tuple:
        return tuple([_exchanged(item, exchange) for item in value])
    return value
