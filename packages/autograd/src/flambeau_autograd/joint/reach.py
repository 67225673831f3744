"""What autograd's graph of the trace tells: which outputs an input decides, and what eager's nodes save.

In: differentiable outputs, and what nodes of list ops save. Out: a `Reach`. Eager gives an input no gradient where none of the outputs that it
decides has one, and raises in the backward when something that a node saved was written meanwhile, whatever the compiled backward saves.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from operator import or_
from typing import Any, Protocol

import torch
from torch.autograd.graph import get_gradient_edge

from ..wrappers.forms import plain_parts
from ..wrappers.native import write_behind
from .lists import is_list_node

#: The type of autograd's nodes for a write through a view of a tensor with a history.
_WRITE_THROUGH_VIEW = "CopySlices"
#: The type of those where the gradient of a leaf arrives.
_OF_A_LEAF = "AccumulateGrad"


class Summarised(Protocol):
    """What a node that stands for a whole body has as its `flambeau_body`; a place is that of an edge."""

    def decided(self, place: int) -> Sequence[int]:
        """The results of the node that decide what an edge leads to."""

    def led(self, place: int) -> Sequence[int]:
        """The results of the node from which eager's engine comes to what an edge leads to."""

    def saved(self, node: Any) -> Iterator[tuple[Any, Sequence[int]]]:
        """What nodes in the body save, None for what is no operand and no result, and the results that lead to each."""


def summarised(node: Any) -> Summarised | None:
    """What a node says of the body that it stands for; None for other nodes."""
    found: Summarised | None = getattr(node, "flambeau_body", None)
    return found


class Reach:
    """One pass over the graph, from the outputs to the leaves; a set of outputs is the bits of a number."""

    def __init__(self, outputs: Sequence[torch.Tensor], saved_by_lists: dict[Any, list[torch.Tensor]]) -> None:
        self._saved_by_lists = saved_by_lists
        edges = [get_gradient_edge(out) for out in outputs]
        self.ends = range(len(outputs))
        self._masks: dict[Any, int] = {}
        self._results: dict[tuple[Any, int], int] = {}
        #: From which outputs the engine comes to a node, with a gradient or without.
        self._led: dict[Any, int] = {}
        self._results_led: dict[tuple[Any, int], int] = {}
        #: How many gradients the engine may bring to a node for one of its results.
        self.arriving: Counter[tuple[Any, int]] = Counter()
        for place, edge in enumerate(edges):
            self._add(edge.node, edge.output_nr, 1 << place, 1 << place)
        self.nodes = _readers_first([edge.node for edge in edges])
        for node in self.nodes:
            for child, result, mask, led in self._decided_by(node):
                self._add(child, result, mask, led)
        #: Of the leaves that something leads to, the node where their gradient arrives. Asking autograd for one makes a view of the leaf.
        self._ends = {id(node.variable): node for node in self.nodes if type(node).__name__ == _OF_A_LEAF}

    def _add(self, node: Any, result: int, mask: int, led: int) -> None:
        self.arriving[node, result] += 1
        self._led[node] = self._led.get(node, 0) | led
        self._results_led[node, result] = self._results_led.get((node, result), 0) | led
        self._masks[node] = self._masks.get(node, 0) | mask
        self._results[node, result] = self._results.get((node, result), 0) | mask

    def _decided_by(self, node: Any) -> Iterator[tuple[Any, int, int, int]]:
        """What the node leads to, the outputs that decide each, and those that lead to it: a member of a list by the result in its place, an operand of
        a body as the body's own graph tells."""
        length = len(node._input_metadata) if is_list_node(node) else 0
        body = summarised(node)
        for place, (child, result) in enumerate(node.next_functions):
            if child is None:
                continue
            mask, led = self._masks[node], self._led[node]
            if body is not None:
                mask = _united(self._results, node, body.decided(place))
                led = _united(self._results_led, node, body.led(place))
            elif length:
                mask = self._results.get((node, place % length), 0)
            yield child, result, mask, led

    def outputs_of(self, leaf: torch.Tensor) -> tuple[int, ...]:
        """The places of the outputs that lead to a leaf."""
        return self._places(self._masks.get(self._ends.get(id(leaf)), 0))

    def leading_to(self, leaf: torch.Tensor) -> tuple[int, ...]:
        """The places of the outputs from which the engine comes to a leaf, with a gradient or without."""
        return self._places(self._led.get(self._ends.get(id(leaf)), 0))

    def saved(self) -> Iterator[tuple[Any, tuple[int, ...]]]:
        """Each tensor that a node saves, and the places of the outputs that lead to the node. Before the graph is freed.

        None instead of a tensor for what the graph is freed of as well, so that a second backward raises there: a list of no tensors, a
        tensor written since, the function behind a write through a view.
        """
        for node in self.nodes:
            if (body := summarised(node)) is not None:
                for tensor, results in body.saved(node):
                    yield tensor, self._places(_united(self._results_led, node, results))
                continue
            places = self._places(self._led[node])
            if type(node).__name__ == _WRITE_THROUGH_VIEW:
                yield None, places
                node = write_behind(node)
            for tensor in self._saved_by_lists.get(node, ()):
                yield tensor, places
            kind: Any = type(node)
            for name in _saved_names(kind):
                yield from ((part, places) for tensor in _unpacked(node, name) for part in _plain(tensor))

    def ends_beside(self, leaves: Sequence[torch.Tensor]) -> bool:
        """Whether a node leads to none of the leaves: eager's engine runs it too, and may find what was written, or no derivative.

        Such a history starts at a view taken without grad mode, which wants a gradient and has no way to its base.
        """
        leading = {self._ends[id(leaf)] for leaf in leaves if id(leaf) in self._ends}
        for node in reversed(self.nodes):
            if any(child in leading for child, _ in node.next_functions):
                leading.add(node)
        return any(node not in leading for node in self.nodes)

    def joining(self) -> set[Any]:
        """The nodes to which more than one gradient may come for one of their results."""
        return {node for (node, _), count in self.arriving.items() if count > 1 and node.next_functions}

    def is_apart(self, nodes: Collection[Any]) -> bool:
        """Whether one of these may come by gradients of some of its results, and not of others that lead somewhere."""
        return any(mask != self._masks[node] for (node, _), mask in self._results.items() if node in nodes)

    def _places(self, mask: int) -> tuple[int, ...]:
        return tuple(place for place in self.ends if mask >> place & 1)


def _united(masks: Mapping[tuple[Any, int], int], node: Any, results: Iterable[int]) -> int:
    """The outputs that stand in a table for any of these results of a node."""
    return reduce(or_, (masks.get((node, result), 0) for result in results), 0)


@functools.cache
def _saved_names(kind: Any) -> tuple[str, ...]:
    """Of a type of nodes, the attributes that unpack tensors; reading a saved number would make a constant of it."""
    if issubclass(kind, torch.autograd.function.BackwardCFunction):
        return ("saved_tensors",)
    return tuple(name.removeprefix("_raw") for name in dir(kind) if name.startswith("_raw_saved_"))


def _unpacked(node: Any, name: str) -> Iterator[Any]:
    try:
        value = getattr(node, name)
    except RuntimeError:
        # Written since it was saved: differentiating raises for it, if it comes to that node.
        yield None
        return
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        if name != "saved_tensors":
            yield None
        yield from (item for item in value if isinstance(item, torch.Tensor))


def _plain(tensor: Any) -> Iterator[Any]:
    """A tensor that is saved, or what it holds."""
    return iter((tensor,)) if tensor is None else plain_parts(tensor)


def _readers_first(ends: Sequence[Any]) -> list[Any]:
    """Every node that the ends lead to, each after all that lead to it."""
    order: list[Any] = []
    seen: set[Any] = set()
    for end in ends:
        stack = [] if end in seen else [(end, iter(end.next_functions))]
        seen.add(end)
        while stack:
            node, rest = stack[-1]
            child = next((child for child, _ in rest if child is not None and child not in seen), None)
            if child is None:
                order.append(node)
                stack.pop()
            else:
                seen.add(child)
                stack.append((child, iter(child.next_functions)))
    return order[::-1]
