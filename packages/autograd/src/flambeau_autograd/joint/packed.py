"""What autograd saves while a graph runs, in order.

In: the recorder of a trace. Out: the node of each tensor that eager's nodes save, or that a context of an `autograd.Function` holds. When the same
graph runs on real tensors, they save the same values in the same order (`wrappers/recovery.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import Node

from ..functional.recorder import Recorder
from ..wrappers.contexts import exchange_in_contexts


@contextmanager
def packed_values(recorder: Recorder, packed: list[Node | None]) -> Iterator[None]:
    """Append to `packed` while the graph runs; None for a tensor that is none of the graph's."""

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        packed.append(recorder.node_of(tensor) if isinstance(tensor, FakeTensor) else None)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        yield


def held_values(recorder: Recorder, results: list[Any]) -> list[Node | None]:
    """As `packed_values` gives them, of what contexts hold when the graph has run."""
    held: list[Node | None] = []

    def note(tensor: torch.Tensor) -> torch.Tensor:
        held.append(recorder.node_of(tensor) if isinstance(tensor, FakeTensor) else None)
        return tensor

    exchange_in_contexts(results, (), note)
    return held


@contextmanager
def without_saved_hooks() -> Iterator[None]:
    """The caller's hooks on saved tensors see what the compiled graph saves, not what the trace does."""
    table, taken = torch._C._autograd, []
    while (pair := table._top_saved_tensors_default_hooks(True)) is not None:
        taken.append(pair)
        table._pop_saved_tensors_default_hooks()
    try:
        yield
    finally:
        for pair in reversed(taken):
            table._push_saved_tensors_default_hooks(*pair)
