"""Which graph nodes a kernel computes: the one whose result it stores, and those whose elements are computed where that one reads them.

In: nodes, and what became of each. Out: names in the order of the graph's data flow.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import getitem
from typing import Any

from torch import fx

from .values import TensorValue


class Provenance:
    """``values`` are those of the nodes that are lowered; it grows while they are."""

    def __init__(self, values: Mapping[fx.Node, Any]) -> None:
        self._values = values

    def of(self, node: fx.Node) -> tuple[str, ...]:
        """``node`` and what it reads that is in no memory, each after what it reads itself; a part of a result counts as the call that gives it."""
        found: dict[str, None] = {}
        seen: set[fx.Node] = set()
        stack = [(node, False)]
        while stack:
            at, is_read = stack.pop()
            if is_read:
                found[at.name] = None
                continue
            if at in seen or at.op != "call_function":
                continue
            seen.add(at)
            if at.target is not getitem:
                stack.append((at, True))
            stack += [(source, False) for source in reversed(at.all_input_nodes) if self._is_computed_by(at, source)]
        return tuple(found)

    def _is_computed_by(self, reader: fx.Node, source: fx.Node) -> bool:
        value = self._values.get(source)
        return reader.target is getitem or (isinstance(value, TensorValue) and not value.is_stored())
