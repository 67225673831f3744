"""Calls that the program lets move behind the graph (`reorderable_logging_functions`): printing and logging that would end it.

In: a call met while tracing, of constants and tensors. Out: the same call after the graph, in its place among others. What is written to a tensor between the
call and the graph's end is not shown: the graph then copies the tensor where the call stands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from attrs import evolve

from ..class_names import name_of
from ..library import functools
from ..native import _C
from ..signals import GraphBreak
from ..values.base import Value
from ..values.symbolic import SymbolicValue
from ..values.tensor import TensorValue

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import torch.fx

    from ..values.base import Tracer


class MovedTensor(Value):
    """A tensor that a moved call is given. `node` is the last of the graph where the call stands, `writes` how often it has been written by then."""

    __slots__ = ("node", "tensor", "writes")

    def __init__(self, t: Tracer, tensor: TensorValue) -> None:
        super().__init__()
        self.tensor = tensor
        self.node = next(iter(reversed(t.graph.root.nodes)), None)
        self.writes = _writes(t, tensor.fake)

    def python_type(self) -> type:
        return self.tensor.python_type()


def moved(t: Tracer, function: Any, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value | None:
    """The call of a function that the program lets move; None of any other. Breaks the graph where it is given what may change until then."""
    if not t.config.reorderable_logging_functions:
        return None
    told: Any
    for told in t.config.reorderable_logging_functions:
        if told is function:
            held = t.wrapper.wrapped.get(id(function))
            break
        if args and getattr(told, "__func__", None) is function and args[0].realise(t).real() is told.__self__:
            held, function, args = args[0].realise(t), told, args[1:]
            break
    else:
        return None
    if held is not None:
        t.guards.identity(held.source, held.real())  # the class of an object, and the code of a function, have others
    given = [_given(t, function, value) for value in args]
    named = {name: value.realise(t) for name, value in kwargs.items()}
    if not all(value.is_constant() for value in named.values()):
        raise _refusal(function, next(value for value in named.values() if not value.is_constant()))
    if named:
        function = functools.partial(function, **{name: value.constant() for name, value in named.items()})
    # What it calls is not captured, as it would not be in the graph.
    return t.heap.call_later(t.wrapper.wrap_pinned(_C.Disabled(function, True)), given)


def _given(t: Tracer, function: Any, value: Value) -> Value:
    value = value.realise(t)
    if isinstance(value, TensorValue):
        t.recorder.node_of(value)
        return MovedTensor(t, value)
    if isinstance(value, SymbolicValue) or value.is_constant():
        return value
    raise _refusal(function, value)


def _refusal(function: Any, value: Value) -> GraphBreak:
    return GraphBreak("input-output", f"{name_of(function)} would be moved, and is given {value.describe()}")


def _writes(t: Tracer, fake: torch.Tensor) -> int | None:
    """How often the graph has written to a tensor's memory so far; None: nobody counts. What `tensor.data` gives counts for itself."""
    if fake.is_inference():
        return None
    memory = fake.untyped_storage()._cdata
    data = (node.meta["val"] for node in t.graph.root.nodes if node.target is getattr and node.args[1:] == ("data",))
    apart = (one._version for one in data if not one.is_inference() and one.untyped_storage()._cdata == memory)
    return fake._version + sum(apart)


def settle_moved(t: Tracer) -> None:
    """Give moved calls their tensors, once the graph is complete."""
    for place, call in enumerate(t.heap.calls):
        if any(isinstance(arg, MovedTensor) for arg in call.args):
            args = (_as_it_was(t, arg) if isinstance(arg, MovedTensor) else arg for arg in call.args)
            t.heap.calls[place] = evolve(call, args=tuple(args))


def _as_it_was(t: Tracer, given: MovedTensor) -> Value:
    if given.writes is not None and _writes(t, given.tensor.fake) == given.writes:
        return given.tensor
    with t.graph.unpatched, torch.no_grad():
        copy = given.tensor.fake.detach().clone()
    root, after = t.graph.root, given.node
    if after is None or after.op == "placeholder":
        after = [node for node in root.nodes if node.op == "placeholder"][-1]
    with root.inserting_after(after):
        node = t.graph.derive(torch.detach, (t.recorder.node_of(given.tensor),), copy)
    with root.inserting_after(node):
        node = t.graph.derive(torch.clone, (node,), copy)
    t.graph.operations += 1
    return TensorValue(copy, node)
