"""Captured graphs as tables, for the logs `graph` and `graph_sizes`.

In: a graph module whose nodes carry fake values under `meta["val"]`. Out: text, one row a node.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import fx

HEADER = ("opcode", "name", "target", "args", "kwargs")


def graph_table(gm: fx.GraphModule) -> str:
    """Every node with its opcode, name, target and arguments, in columns."""
    rows = [(node.op, node.name, _target(node.target), str(node.args), str(node.kwargs)) for node in gm.graph.nodes]
    return _columns([HEADER, *rows])


def graph_sizes(gm: fx.GraphModule) -> str:
    """Every tensor in the graph with its dtype and sizes; a tuple's members are numbered."""
    rows = [
        (name, str(value.dtype).removeprefix("torch."), str(tuple(value.shape)))
        for node in gm.graph.nodes
        if node.op != "output"
        for name, value in _tensors(node.name, node.meta.get("val"))
    ]
    return _columns([("tensor", "dtype", "sizes"), *rows])


def _tensors(name: str, value: Any) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, tuple | list):
        for place, member in enumerate(value):
            yield from _tensors(f"{name}[{place}]", member)


def _target(target: Any) -> str:
    return target if isinstance(target, str) else str(getattr(target, "__qualname__", target))


def _columns(rows: Sequence[tuple[str, ...]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )
