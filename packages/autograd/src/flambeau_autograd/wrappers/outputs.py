"""Rebuilds the user's outputs from the forward's results.

In: the caller's inputs and the results of the joined halves. Out: the tuple that eager would have returned: inputs are
handed back as themselves, views of inputs are views of the caller's tensors, writes with gradient history are done.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..records import OutputSpec, ResultNumber, Signature, TypeName, ViewStep


def resolve(name: str) -> Any:
    """`aten.select.int` -> the overload."""
    namespace, packet, overload = name.split(".")
    return getattr(getattr(getattr(torch.ops, namespace), packet), overload)


_LATER = {"view_of_output": 1, "same_as": 2}


class OutputBuilder:
    """Callable: `joined` with outputs rebuilt as the signature says."""

    def __init__(self, signature: Signature, joined: Callable[..., Any]) -> None:
        self._joined = joined
        self._writes = tuple((m.index, m.output) for m in signature.mutations if m.mode == "wrapper")
        # What is made of other outputs comes after these.
        places = sorted(range(len(signature.outputs)), key=lambda place: _LATER.get(signature.outputs[place].kind, 0))
        self._makers = tuple((place, _maker(signature.outputs[place])) for place in places)

    def __call__(self, *args: Any) -> tuple[Any, ...]:
        results = self._joined(*args)
        for index, place in self._writes:
            args[index].copy_(results[place])
        outputs: list[Any] = [None] * len(self._makers)
        for place, make in self._makers:
            outputs[place] = make(args, results, outputs)
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
    kind, steps = spec.kind, tuple(_step(s) for s in spec.steps)

    def view(args: Any, results: Any, outputs: list[Any]) -> Any:
        base = args[index] if kind == "view_of_input" else (outputs if kind == "view_of_output" else results)[index]
        if kind != "view_of_output" and not spec.requires_grad and (base.requires_grad or not steps):
            base = base.detach()
        elif not steps:
            base = base[...]  # not `view`, which computes strides anew
        for step in steps:
            base = step(base, results)
        return base

    return view


def _step(step: ViewStep) -> Callable[[torch.Tensor, Any], Any]:
    op, item = resolve(step.op), step.item
    args, kwargs = _thawed(step.args), {name: _thawed(value) for name, value in step.kwargs}
    if _mentions_results((*step.args, *(value for _, value in step.kwargs))):

        def call(base: torch.Tensor, results: Any) -> Any:
            return op(base, *_filled(args, results), **_filled(kwargs, results))

    else:

        def call(base: torch.Tensor, results: Any) -> Any:
            return op(base, *args, **kwargs)

    take = call if item is None else lambda base, results: call(base, results)[item]
    return take if step.grad else torch.no_grad()(take)


def _thawed(value: Any) -> Any:
    """As the op takes it: lists for tuples, dtypes for their names."""
    if isinstance(value, tuple):
        return [_thawed(v) for v in value]
    return getattr(torch, value.dtype) if isinstance(value, TypeName) else value


def _mentions_results(value: Any) -> bool:
    if isinstance(value, tuple):
        return any(_mentions_results(v) for v in value)
    return isinstance(value, ResultNumber)


def _filled(value: Any, results: Any) -> Any:
    """With the numbers of this call."""
    if isinstance(value, list):
        return [_filled(v, results) for v in value]
    if isinstance(value, dict):
        return {name: _filled(v, results) for name, v in value.items()}
    return results[value.result] if isinstance(value, ResultNumber) else value
