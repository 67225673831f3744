"""Calls of operators over functional bodies, in the trace that they stand in.

In: an operator, its arguments (tensors of the trace, numbers, functional graphs) and fakes of its results. Out: nodes of the trace. A call with a
gradient goes through one `autograd.Function`, so that the engine comes to the operator's backward as to a formula of torch's own.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from operator import getitem
from typing import Any, Protocol

import torch
from torch.fx import GraphModule, Node
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

from ...functional.recorder import Recorder
from ..summary import Summary
from .cut import Key
from .trace import same_strides

aten = torch.ops.aten


def module_node(recorder: Recorder, body: GraphModule) -> Node:
    """The node that stands for a body, one for all the calls that share it."""
    for node in recorder.graph.find_nodes(op="get_attr"):
        if node.meta.get("body") is body:
            return node
    name = f"_body{sum(isinstance(constant, GraphModule) for constant in recorder.constants.values())}"
    recorder.constants[name] = body
    first = next((node for node in recorder.graph.nodes if node.op != "placeholder"), None)
    with recorder.graph.inserting_before(first):
        node = recorder.graph.create_node("get_attr", name)
    node.meta.update(val=None, stack=(), body=body)
    return node


def record(recorder: Recorder, target: Any, args: Sequence[Any], results: Sequence[Any]) -> list[Any]:
    """Write down `target(*args)`; `results`: fakes of what it gives, None for nothing. Returns tensors of the trace."""

    def operand(value: Any) -> Any:
        if isinstance(value, GraphModule):
            return module_node(recorder, value)
        return recorder.laid_out(value) if isinstance(value, torch.Tensor) else recorder.operands(value)

    mapped = pytree.tree_map(operand, tuple(args))
    with apart(recorder):
        made = [None if fake is None else _empty_as(fake) for fake in results]
    node = recorder.add_node(target, mapped, {}, tuple(made))
    for place, tensor in enumerate(made):
        if tensor is not None:
            recorder.fresh(tensor, recorder.add_node(getitem, (node, place), {}, tensor))
            recorder.symbols.bind_result(tensor, tensor._flambeau.node)
    return made


@contextmanager
def apart(recorder: Recorder) -> Iterator[None]:
    """Inside, nothing is recorded: what is computed are fakes of other graphs."""
    with _disable_current_modes(), recorder.fake_mode, torch.no_grad():
        yield


def like(recorder: Recorder, fake: torch.Tensor, leading: Sequence[Any] = ()) -> torch.Tensor:
    """An empty fake of the same layout; with a `leading` size, a row-major stack of such."""
    with apart(recorder):
        if leading:
            return torch.empty((*leading, *fake.shape), dtype=fake.dtype, device=fake.device)
        return _empty_as(fake)


def _empty_as(fake: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(fake.size(), fake.stride(), dtype=fake.dtype, device=fake.device)


def zeros(recorder: Recorder, fake: torch.Tensor) -> torch.Tensor:
    """Recorded zeros of the shape of `fake`."""
    made: torch.Tensor = recorder.call(aten.full.default, list(fake.shape), 0, dtype=fake.dtype, device=fake.device)
    return made


def laid_as(recorder: Recorder, tensor: torch.Tensor, fake: torch.Tensor) -> torch.Tensor:
    """`tensor`, or a copy that lies as `fake` does."""
    if same_strides(tensor, fake):
        return tensor
    copy: torch.Tensor = recorder.with_strides(tensor, fake.stride())
    return copy


def operand_of(recorder: Recorder, key: Key, operands: Sequence[Any]) -> Any:
    """What stands for a key in the trace: an operand of the call, or the value of a symbolic number."""
    return recorder.symbols.value_of(key.what) if key.kind == "number" else operands[key.what]


def tangent_of(recorder: Recorder, tangent: torch.Tensor | None, fake: torch.Tensor) -> torch.Tensor:
    """A tangent as a body expects it: zeros where no gradient came."""
    return zeros(recorder, fake) if tangent is None else laid_as(recorder, tangent, fake)


def is_given(recorder: Recorder, tangents: Sequence[Any], device: torch.device) -> torch.Tensor:
    """Whether one of these tangents is a gradient that came, as a recorded bool."""
    came = [tangent for tangent in tangents if tangent is not None]
    flag: torch.Tensor | None = recorder.sums.given(came, device) if came and recorder.sums is not None else None
    if flag is None:
        flag = recorder.call(aten.full.default, [], bool(came), dtype=torch.bool, device=device)
    return flag


class Call(Protocol):
    """One call with a gradient."""

    @property
    def recorder(self) -> Recorder:
        """What its nodes are written down with."""

    @property
    def differentiable(self) -> Sequence[int]:
        """The places of the results that have a history."""

    def forward(self, operands: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Record the operator; its results, and what is kept for the backward."""

    def backward(self, kept: list[Any], tangents: Sequence[Any]) -> list[Any]:
        """Record the backward; a gradient, or None, for each operand. A tangent is None where no gradient came."""


def run(call: Call, operands: Sequence[Any], summary: Summary | None = None) -> list[Any]:
    """The results of a call. Autograd asks `call` for the gradients of those that have a history, as `summary` tells it of a body (None: of one operator)."""
    if not call.differentiable:
        return call.forward(operands)[0]
    return list(_Differentiable.apply(call, False, summary, *operands))


def run_control_flow(call: Call, operands: Sequence[Any]) -> list[Any]:
    """The results of a call of an operator that has one autograd function of torch's around it all: where it is asked for any gradient, every
    result that can have one has one, and every operand that wants a gradient gets one, of zeros at least."""
    if not any(map(is_wanted, operands)):
        return call.forward(operands)[0]
    return list(_Differentiable.apply(call, True, None, *operands))


class _Differentiable(torch.autograd.Function):
    """Both halves are recorded where autograd runs them."""

    @staticmethod
    def forward(ctx: Any, call: Call, every: bool, summary: Summary | None, *operands: Any) -> Any:
        """As `Function` defines it."""
        results, kept = call.forward(operands)
        ctx.call = call
        tensors = [value for value in kept if isinstance(value, torch.Tensor)]
        seen: list[Any] = []
        if summary is not None:
            seen = _seen(summary, operands, results)
            ctx.flambeau_body = _Body(summary, operands, len(tensors))
        ctx.save_for_backward(*tensors, *seen)
        ctx.others = [None if isinstance(value, torch.Tensor) else (value,) for value in kept]
        ctx.set_materialize_grads(False)
        places = range(len(results)) if every else call.differentiable
        ctx.mark_non_differentiable(*(r for i, r in enumerate(results) if r is not None and i not in places))
        wanted = zip(operands, ctx.needs_input_grad[3:])
        # No tensors, which would be taken for values that are kept.
        ctx.zeros = [
            partial(zeros, call.recorder, like(call.recorder, o)) if every and is_asked else None
            for o, is_asked in wanted
        ]
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *tangents: Any) -> Any:
        """As `Function` defines it."""
        call, tensors = ctx.call, iter(ctx.saved_tensors)
        kept = [next(tensors) if other is None else other[0] for other in ctx.others]
        grads = call.backward(kept, tangents) if call.differentiable else [None] * len(ctx.zeros)
        filled = (make() if grad is None and make is not None else grad for grad, make in zip(grads, ctx.zeros))
        return None, None, None, *filled


def _seen(summary: Summary, operands: Sequence[Any], results: Sequence[Any]) -> list[Any]:
    """The operands and results of a call that nodes of its body save, in the order in which the summary lists them."""
    shown = {"input": operands, "output": results}
    return [shown[kind][place] for kind, place, _ in summary.saved if kind in shown]


class _Body:
    """What the node of a call says of its body; see `Summarised`. `first`: where `_seen` begins among the node's tensors."""

    def __init__(self, summary: Summary, operands: Sequence[Any], first: int) -> None:
        self._summary, self._first = summary, first
        self._places = [place for place, operand in enumerate(operands) if isinstance(operand, torch.Tensor)]

    def decided(self, place: int) -> Sequence[int]:
        """As `Summarised` defines it."""
        return self._summary.decided[self._places[place]]

    def led(self, place: int) -> Sequence[int]:
        """As `Summarised` defines it."""
        return self._summary.led[self._places[place]]

    def saved(self, node: Any) -> Iterator[tuple[Any, Sequence[int]]]:
        """As `Summarised` defines it."""
        tensors: Iterator[Any]
        try:
            tensors = iter(node.saved_tensors[self._first :])
        except RuntimeError:
            # Written since it was saved: differentiating raises for it.
            tensors = itertools.repeat(None)
        for kind, _, results in self._summary.saved:
            yield (None if kind == "inside" else next(tensors)), results


def is_wanted(operand: Any) -> bool:
    """Whether autograd asks for a gradient of an operand."""
    return isinstance(operand, torch.Tensor) and operand.requires_grad and torch.is_grad_enabled()


def resolved(operand: Any) -> Any:
    """An operand whose memory holds the numbers that it shows."""
    if isinstance(operand, torch.Tensor) and (operand.is_conj() or operand.is_neg()):
        return operand.resolve_conj().resolve_neg()
    return operand


def kept_value(recorder: Recorder, key: Key, operands: Sequence[Any], results: Mapping[Key, Any]) -> Any:
    """What stands for a key of a backward in the trace: an operand, a number, or what the forward gave."""
    return results[key] if key.kind in ("output", "extra") else operand_of(recorder, key, operands)


def by_place(gives: Sequence[Key], grads: Sequence[Any], count: int) -> list[Any]:
    """Gradients for each of `count` operands, None where a backward gives none."""
    found: list[Any] = [None] * count
    for key, grad in zip(gives, grads):
        found[key.what] = grad
    return found


def slice_of(recorder: Recorder, tensor: torch.Tensor) -> torch.Tensor:
    """An empty fake that lies as a slice of a tensor along its first dimension does, and wants a gradient where that does."""
    with apart(recorder):
        made = torch.empty_strided(tensor.shape[1:], tensor.stride()[1:], dtype=tensor.dtype, device=tensor.device)
        return made.requires_grad_(tensor.requires_grad)
