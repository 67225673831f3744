"""Fresh fake tensors for a trace, and what the caller's inputs are to each other.

In: example inputs (fakes, ints, symbolic numbers). Out: one `TracedInput` each, bound to a placeholder; inputs that
share a storage know it. Leaves stay leaves; other inputs that require grad can be written in place, as in eager.
"""

from __future__ import annotations

from typing import Any

import torch
from attrs import define
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx import Node

from ..errors import UnsupportedGraph
from ..functional.recorder import Recorder
from ..functional.values import Cell


@define(eq=False)
class TracedInput:
    """`seen` is what the graph sees, `leaf` where its gradient is taken; for numbers both are the number. `history`, `version`: of
    `seen` before the graph ran."""

    index: int
    node: Node
    seen: Any
    leaf: Any
    cell: Cell | None = None
    history: Any = None
    storage: int = 0
    version: int = 0
    is_parameter: bool = False

    @property
    def is_tensor(self) -> bool:
        return self.cell is not None


def version_of(tensor: torch.Tensor) -> int:
    """How often autograd was told of a write to it; never for one of inference mode."""
    return -1 if tensor.is_inference() else tensor._version


def find_fake_mode(inputs: list[Any]) -> FakeTensorMode:
    """The one mode of the inputs' fake tensors; a new one when there is no tensor among them."""
    for value in inputs:
        if isinstance(value, FakeTensor):
            return value.fake_mode
    return FakeTensorMode()


def trace_inputs(recorder: Recorder, inputs: list[Any], names: list[str]) -> list[TracedInput]:
    """A placeholder and fresh fakes per input, in order. Raises `UnsupportedGraph` for tensor subclasses."""
    traced = []
    for i, (value, name) in enumerate(zip(inputs, names)):
        node = recorder.graph.placeholder(name)
        node.meta["stack"] = ()
        if isinstance(value, torch.Tensor):
            traced.append(_trace_tensor(recorder, i, node, value))
            continue
        node.meta["val"] = value
        if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            recorder.symbols.bind(value, node)
        elif not isinstance(value, (int, float, bool, type(None))):
            raise UnsupportedGraph(f"input {i} is a {type(value).__name__}, not a tensor or number")
        traced.append(TracedInput(i, node, value, value))
    return traced


def _trace_tensor(recorder: Recorder, index: int, node: Node, value: torch.Tensor) -> TracedInput:
    is_parameter = isinstance(value, torch.nn.Parameter)
    if not isinstance(value, FakeTensor):
        value = recorder.fake_mode.from_tensor(value)
    if type(value) is not FakeTensor and not isinstance(value, torch.nn.Parameter):
        raise UnsupportedGraph(f"input {index} is the tensor subclass {type(value).__name__}")
    leaf = value.detach()
    storage = leaf.untyped_storage()._cdata
    seen = leaf
    if value.requires_grad:
        leaf.requires_grad_(True)
        if not value.is_leaf:
            with torch.enable_grad(), recorder.fake_mode:
                if leaf.is_conj() or leaf.is_neg():
                    seen = _AsLazy.apply(leaf)
                else:
                    seen = torch.empty_strided(leaf.size(), leaf.stride(), dtype=leaf.dtype, device=leaf.device)
                    seen.copy_(leaf)
    node.meta["val"] = seen
    cell = recorder.bind_input(seen, node, index)
    return TracedInput(index, node, seen, leaf, cell, seen.grad_fn, storage, version_of(seen), is_parameter)


class _AsLazy(torch.autograd.Function):
    """What was computed from the leaf, and is conjugated or negated as lazily."""

    @staticmethod
    def forward(ctx: Any, leaf: torch.Tensor) -> torch.Tensor:
        """As `Function` defines it."""
        return leaf.detach()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        """As `Function` defines it."""
        return grads[0]
