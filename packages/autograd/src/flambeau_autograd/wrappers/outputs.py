"""Rebuilds the user's outputs from the forward's results.

In: the caller's inputs and the results of the joined halves. Out: the tuple that eager would have returned: inputs are
handed back as themselves, views of inputs are views of the caller's tensors, writes with gradient history are done.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..errors import InternalError
from ..records import OutputSpec, Signature, ViewStep


def resolve(name: str) -> Any:
    """`aten.select.int` -> the overload."""
    namespace, packet, overload = name.split(".")
    return getattr(getattr(getattr(torch.ops, namespace), packet), overload)


class OutputBuilder:
    """Callable: `joined` with outputs rebuilt as the signature says."""

    def __init__(self, signature: Signature, joined: Callable[..., Any]) -> None:
        self._joined = joined
        self._writes = tuple((m.index, m.output) for m in signature.mutations if m.mode == "wrapper")
        self._makers = tuple(_maker(o) for o in signature.outputs)

    def __call__(self, *args: Any) -> tuple[Any, ...]:
        results = self._joined(*args)
        for index, place in self._writes:
            args[index].copy_(results[place])
        outputs: list[Any] = []
        for make in self._makers:
            outputs.append(make(args, results, outputs))
        return tuple(outputs)


def _maker(spec: OutputSpec) -> Callable[[Any, Any, list[Any]], Any]:
    index, value = spec.index, spec.value
    if spec.kind == "graph":
        return lambda args, results, outputs: results[index]
    if spec.kind == "input":
        return lambda args, results, outputs: args[index]
    if spec.kind == "same_as":
        return lambda args, results, outputs: outputs[index]
    if spec.kind == "constant":
        return lambda args, results, outputs: value
    from_input = spec.kind == "view_of_input"
    steps = tuple((resolve(s.op), s) for s in spec.steps)

    def view(args: Any, results: Any, outputs: list[Any]) -> Any:
        base = args[index] if from_input else results[index]
        if not spec.requires_grad and base.requires_grad:
            base = base.detach()
        if spec.like >= 0:
            return _like(base, results[spec.like])
        if not steps:
            return base if not spec.requires_grad else base.view_as(base)
        for op, step in steps:
            base = _apply(op, step, base)
        return base

    return view


def _apply(op: Any, step: ViewStep, base: torch.Tensor) -> Any:
    result = op(base, *(list(a) if isinstance(a, tuple) else a for a in step.args), **dict(step.kwargs))
    return result if step.item is None else result[step.item]


def _like(base: torch.Tensor, pattern: torch.Tensor) -> torch.Tensor:
    if pattern.untyped_storage().data_ptr() != base.untyped_storage().data_ptr():
        raise InternalError("the compiled graph copied an output that must be a view of an input")
    if pattern.dtype != base.dtype:
        raise InternalError("an output of symbolic size changes its input's type")
    return torch.as_strided(base, pattern.shape, pattern.stride(), pattern.storage_offset())
