"""What eager would have saved, from what was saved: for a backward of the backward of which an input is gone.

In: a `Trace` (how every value of the forward is computed), the inputs that are left, the saved values. Out: hooks under which the captured graph
runs in eager on zeros in the place of what is gone. Each tensor that autograd saves meanwhile is replaced by its true value, so that gradients
and their history are eager's, whatever the zeros gave. A value that does not follow is an error when the backward asks for it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from attrs import frozen
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg
from torch.utils._python_dispatch import _disable_current_modes

from ..records import SavedSpec
from .contexts import exchange_in_contexts
from .stand_ins import with_history
from .uncomputed import Uncomputed

_WRITTEN = (
    "one of the variables needed for gradient computation has been modified by an inplace operation: a tensor of shape {} that a compiled "
    "graph saved is at version {}; expected version {} instead."
)


@frozen
class Definition:
    """One node of the forward before any pass: what it calls."""

    op: str
    target: Any
    args: Any
    kwargs: Any


@frozen(eq=False)
class Trace:
    """`first`: for each node the first that computes the same. `definitions`: of those, in order, in terms of those. `inputs`: placeholders.
    `packed`: what eager's nodes save, in order (None: no tensor of the graph's). `held`: what contexts of functions hold, likewise.
    `saved`, `specs`: what the compiled forward saves. `sized`: nodes that read how a tensor lies in memory and not its contents. `drawn`: nodes that draw random numbers. `fixed`: nodes that
    must not have other values where they are computed with. `sizing`: nodes whose values decide sizes. `read`: nodes whose contents the backward reads.
    """

    first: Mapping[Node, Node]
    definitions: Mapping[Node, Definition]
    inputs: tuple[Node, ...]
    packed: tuple[Node | None, ...]
    held: tuple[Node | None, ...]
    specs: tuple[SavedSpec, ...]
    saved: tuple[Node, ...]
    sized: frozenset[Node]
    drawn: frozenset[Node]
    fixed: frozenset[Node]
    sizing: frozenset[Node]
    read: frozenset[Node]
    constants: Mapping[str, torch.Tensor | GraphModule]


class Lost(Exception):
    """A value cannot be computed from what is left."""


class Recovery:
    """`lost`: places of inputs; `inputs`: all of them, with zeros for those; `saved`: as the backward gets them; `reason`: the error for a value
    that does not follow. Raises it at once where the graph cannot run on zeros.
    """

    def __init__(
        self, trace: Trace, lost: set[int], inputs: list[Any], saved: tuple[Any, ...], reason: Exception
    ) -> None:
        self._trace, self._reason = trace, reason
        places = [trace.first[node] for node in trace.inputs]
        gone = {places[i] for i in lost}
        self._astray = _depending(trace, gone | trace.drawn)
        without = _depending(trace, gone)
        if without & trace.sizing:
            raise reason
        #: Under which the graph runs: nothing is computed where that might raise, so that every value is one to be told.
        self.mode: AbstractContextManager[Any] = nullcontext()
        if without & trace.fixed:
            self.mode = Uncomputed(reason)
            self._astray = {*trace.first.values()} - {*places} | gone
        self._is_poisoned = False
        self._shapes = {places[i]: inputs[i] for i in lost}
        self._values: dict[Node, Any] = {
            node: value.detach() if isinstance(value, torch.Tensor) else value
            for node, value in zip(places, inputs)
            if node not in gone
        }
        for node, value in zip(trace.saved, saved):
            if node in trace.first:
                known = value.detach() if isinstance(value, torch.Tensor) else value
                self._values[trace.first[node]] = known
        self._next = 0

    def pack(self, tensor: torch.Tensor) -> tuple[torch.Tensor | None, int]:
        """A hook for saved tensors."""
        place, self._next = self._next, self._next + 1
        value = self._true(tensor, self._trace.packed, place)
        return value, 0 if value is None or value.is_meta else value._version

    def hold(self, outputs: Sequence[Any], borders: Iterable[Any]) -> None:
        """What contexts of functions hold is exchanged likewise; see `exchange_in_contexts`."""
        places = itertools.count()

        def exchange(tensor: torch.Tensor) -> torch.Tensor:
            value = self._true(tensor, self._trace.held, next(places))
            if value is None:
                raise self._reason
            return with_history(value, tensor) if value is not tensor and tensor.requires_grad else value

        exchange_in_contexts(outputs, borders, exchange)
        if next(places) != len(self._trace.held):
            raise self._reason

    def _true(self, tensor: torch.Tensor, values: Sequence[Node | None], place: int) -> torch.Tensor | None:
        """What the forward had where there is `tensor`, the one at a place in order; none where it must be known and is not."""
        if place >= len(values):
            raise self._reason
        known = values[place]
        node = None if known is None else self._trace.first[known]
        if node is None or node not in self._astray:
            return tensor
        try:
            with torch.no_grad(), torch._C._DisableAutocast(), _disable_current_modes():
                value = self._value_of(node)
        except Lost:
            # A formula that asks for sizes alone gets them; one that reads more after all cannot compute with it.
            self._is_poisoned = True
            return None if node in self._trace.read else torch.empty_like(tensor, device="meta")
        if value.shape != tensor.shape or value.dtype != tensor.dtype:
            raise self._reason
        if value.stride() != tensor.stride():
            value = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device).copy_(
                value
            )
        assert isinstance(value, torch.Tensor)
        return value

    def unpack(self, packed: tuple[torch.Tensor | None, int]) -> torch.Tensor:
        """Its inverse."""
        tensor, version = packed
        if tensor is None:
            raise self._reason
        if tensor._version != version:
            raise RuntimeError(_WRITTEN.format(list(tensor.shape), tensor._version, version))
        return tensor

    @contextmanager
    def explained(self) -> Iterator[None]:
        """An error of torch in it is that of what is gone, where that was computed with."""
        try:
            yield
        except RuntimeError as error:
            if self._is_poisoned and "meta" in str(error):
                raise self._reason from error
            raise

    def finish(self) -> None:
        """The graph has run: it saved what the trace did."""
        if self._next != len(self._trace.packed):
            raise self._reason
        self._values.clear()

    def _value_of(self, wanted: Node) -> Any:
        """Computed from what is known; a stack instead of recursion, chains may be long. Raises `Lost`."""
        trace, values = self._trace, self._values
        stack = [wanted]
        while stack:
            node = stack[-1]
            if node in values:
                stack.pop()
                continue
            definition = trace.definitions[node]
            if definition.op == "get_attr":
                values[node] = trace.constants[str(definition.target)]
                continue
            if definition.op == "placeholder" or node in trace.drawn:
                raise Lost
            known: Mapping[Node, Any] = values
            if node in trace.sized:
                known = {**self._shapes, **values}
            missing = [a for a in _operands(definition) if a not in known]
            if missing:
                stack.extend(missing)
                continue
            values[node] = definition.target(
                *map_arg(definition.args, known.__getitem__), **map_arg(definition.kwargs, known.__getitem__)
            )
        return values[wanted]


def _operands(definition: Definition) -> list[Node]:
    found: list[Node] = []

    def note(node: Node) -> Node:
        found.append(node)
        return node

    map_arg((definition.args, definition.kwargs), note)
    return found


def _depending(trace: Trace, nodes: set[Node]) -> set[Node]:
    """These and all that their contents reach."""
    reached = set(nodes)
    for node, definition in trace.definitions.items():
        if node not in trace.sized and any(a in reached for a in _operands(definition)):
            reached.add(node)
    return reached
