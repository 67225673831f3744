"""Calls of what `leaf_function` decorates: one node, whose function is asked what it returns by its fake implementation.

In: the function, what is registered for it, and what it is called with, as values. Out: a node that calls it in plain Python where the graph runs as it is, and
becomes an operator (`leaf_calls.py`) where the graph is differentiated or compiled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch._guards import detect_fake_mode

from ..graph.nodes import first_line
from ..graph.open_numbers import is_open
from ..leaf_calls import LeafCall, Outcome, Place, kind_of, outcome_of, refuse_different, refuse_shared
from ..leaf_functions import LeafFunction, missing_fake
from ..replacements import call_leaf, replaces
from ..signals import GraphBreak
from ..values.base import MISSING, Value
from ..values.tensor import TensorValue
from .whole_calls import Given, Results

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..values.base import Tracer

_DEVICES = ("cpu", "cuda")


@replaces(call_leaf, as_given=True)
def leaf(t: Tracer, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
    """A call of what `leaf_function` decorates."""
    held = args[0].realise(t).real()
    if held is MISSING:
        raise GraphBreak("unsupported-call", "leaf_function of a function that is made in compiled code")
    fake, hook = (t.wrapper.to_python(part.realise(t)) for part in args[1:3])
    if fake is None:
        raise GraphBreak("unsupported-call", missing_fake(held.name))
    named = {key.realise(t).constant(): value for key, value in t.operators.mapping_items(args[4].realise(t))}
    given = Given(t, list(t.operators.iterate_all(args[3])), named, numbers=(int,))
    call = _Call(held, fake, hook, given)
    t.wrapper.keep_alive.append(call.leaf)
    try:
        found = t.recorder.record("call_function", call.node_function(), given.leaves, {})
    except GraphBreak as error:
        if error.code != "operator-error" or error.__cause__ is None:
            raise
        raise GraphBreak("unsupported-call", f"leaf_function {held.name}: {first_line(error.__cause__)}") from error
    given.leaves = []  # the node lives longer than the trace
    return call.results.value(t, list(t.operators.iterate_all(found)))


class _Call:
    """The function of a node."""

    def __init__(self, held: LeafFunction, fake: Any, hook: Any, given: Given) -> None:
        kinds = [kind_of(value.fake) if isinstance(value, TensorValue) else None for value in given.leaves]
        autocast = [
            (device, torch.get_autocast_dtype(device)) for device in _DEVICES if torch.is_autocast_enabled(device)
        ]
        self.leaf = LeafCall(
            held.name, held.function, fake, hook, held.mutates, given.made, kinds, torch.is_grad_enabled(), autocast
        )
        self.held = held
        self.results = Results(held.name)

    def node_function(self) -> Any:
        """What the node calls."""

        def call(*leaves: Any) -> tuple[Any, ...]:
            return self.traced(leaves) if detect_fake_mode(leaves) is not None else self.plain(leaves)

        call.__name__ = f"{self.held.name}_leaf"
        return call

    def plain(self, leaves: Sequence[Any]) -> tuple[Any, ...]:
        """Of real tensors, with eager's own autograd."""
        tensors, numbers = self.leaf.split(leaves)
        said = self.leaf.promise(tensors, numbers)
        with self.leaf.made(leaves) as (args, kwargs):
            result = self.held.plainly(self.leaf.fake, self.leaf.hook, args, kwargs)
            found = outcome_of(self.leaf.name, result, tensors)
        refuse_different(self.leaf.name, found, said)
        return self._flat(found, tensors, found.new)

    def traced(self, leaves: Sequence[Any]) -> tuple[Any, ...]:
        """Of fakes: nodes of operators."""
        leaf = self.leaf
        tensors, numbers = leaf.split(leaves)
        said = leaf.said(detect_fake_mode(leaves), tensors, numbers)
        _refuse_open(leaf.name, said, leaves)
        refuse_shared(leaf.name, tensors, said.written)
        leaf.watch(tensors)
        found = leaf.differentiated(tensors, numbers)
        for place, new in zip(said.written, found[len(said.new) :], strict=True):
            tensors[place].copy_(new)
        return self._flat(said, tensors, found)

    def _flat(self, outcome: Outcome, tensors: Sequence[torch.Tensor], new: Sequence[torch.Tensor]) -> tuple[Any, ...]:
        """The tensors of a result, and the numbers that were symbolic when it was captured."""
        leaves = [_tensor(leaf, tensors, new) if isinstance(leaf, Place) else leaf for leaf in outcome.leaves]
        return self.results.picked(leaves, outcome.spec)


def _tensor(place: Place, tensors: Sequence[torch.Tensor], new: Sequence[torch.Tensor]) -> torch.Tensor:
    return tensors[place] if place >= 0 else new[-1 - place]


def _refuse_open(name: str, said: Outcome, leaves: Sequence[Any]) -> None:
    """Raise RuntimeError for sizes that do not follow from those of the arguments."""
    known = {symbol for leaf in leaves for symbol in _open(leaf)}
    if any(symbol not in known for tensor in said.new for symbol in _open(tensor)):
        raise RuntimeError(
            f"the fake of {name} returns a tensor whose size depends on values: it must follow from the arguments' sizes"
        )


def _open(leaf: Any) -> set[Any]:
    """Symbols without a value."""
    sizes = leaf.shape if isinstance(leaf, torch.Tensor) else (leaf,)
    return {symbol for size in sizes if is_open(size) for symbol in size.node.expr.free_symbols}
