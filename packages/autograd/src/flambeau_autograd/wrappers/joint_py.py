"""The Python twin of the native joint function, on `torch.autograd.Function`.

In: compiled forward and backward, plain signature data (see `Signature`). Out: a callable from inputs to the forward's
results, differentiable. Used where the extension is missing, and as the oracle in tests.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_KEEPS_VERSIONS = torch._C.DispatchKeySet(torch._C.DispatchKey.ADInplaceOrView)
"""Its kernels count writes: those that the program makes are counted here (`bumped`)."""


class PyJointFunction:
    """Constructor arguments are those of `_C.JointFunction`, in the same order."""

    def __init__(
        self,
        forward: Callable[..., Any],
        backward: Callable[..., Any] | None,
        results: int,
        extras: int,
        differentiable: tuple[int, ...],
        tangent_orders: tuple[tuple[int, ...], ...],
        grad_inputs: tuple[int, ...],
        reached_by: tuple[tuple[int, ...], ...],
        saved: tuple[tuple[str, int, bool, int], ...],
        watched: tuple[tuple[str, int, tuple[int, ...]], ...],
        bumped: tuple[int, ...],
        double: Callable[..., Any] | None,
    ) -> None:
        self.forward, self.backward = forward, backward
        self.results, self.extras = results, extras
        self.differentiable, self.tangent_orders = differentiable, tangent_orders
        self.grad_inputs, self.saved, self.bumped, self.double = grad_inputs, saved, bumped, double
        self.reached_by, self.watched = reached_by, watched

    def __call__(self, *args: Any) -> tuple[Any, ...]:
        if torch.is_grad_enabled() and any(args[i].requires_grad for i in self.grad_inputs):
            return _Joined.apply(self, *args)
        return self.run_forward(args, grad_mode=False)[: self.results]

    def run_forward(self, args: tuple[Any, ...], grad_mode: bool) -> tuple[Any, ...]:
        """Results, then extras, computed outside autograd, in the grad mode that kernels would see in eager."""
        with (
            torch._C._AutoDispatchBelowAutograd(),
            torch._C._ExcludeDispatchKeyGuard(_KEEPS_VERSIONS),
            torch._C._DisableAutocast(),
            torch.autograd.grad_mode.set_grad_enabled(grad_mode),
        ):
            results = tuple(call_either(self.forward, args))
        if len(results) != self.results + self.extras:
            raise RuntimeError(f"the forward returned {len(results)} values, {self.results + self.extras} are expected")
        if self.bumped:
            torch.autograd.graph.increment_version([args[i] for i in self.bumped])
        return results


def call_either(function: Callable[..., Any] | None, args: tuple[Any, ...]) -> Any:
    """Call with positional arguments, or with one list when the callable is boxed."""
    if function is None:
        raise RuntimeError("the joint function has no backward")
    return function(list(args)) if getattr(function, "_boxed_call", False) else function(*args)


class _Joined(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, joint: PyJointFunction, *args: Any) -> Any:
        values = joint.run_forward(args, grad_mode=True)
        results = list(values[: joint.results])
        given = {id(a) for a in args}
        for i in joint.differentiable:
            if id(results[i]) in given:
                results[i] = results[i].detach()
        places = {"input": args, "output": results, "extra": values[joint.results :]}
        kept = [places[kind][index] for kind, index, _, _ in joint.saved]
        ctx.set_materialize_grads(False)
        ctx.joint = joint
        ctx.like = [results[i].detach() for i in joint.differentiable]
        ctx.numbers = [v for v, s in zip(kept, joint.saved) if not s[2]]
        tensors = [v for v, s in zip(kept, joint.saved) if s[2]]
        ctx.count = len(tensors)
        # A view has the version counter, and no other result keeps the memory of an input.
        watched = [places[kind][index] for kind, index, _ in joint.watched]
        ctx.watched = [None if t.is_inference() else (t.detach(), t._version) for t in watched]
        ctx.inputs = [None if isinstance(a, torch.Tensor) else a for a in args]
        ctx.input_places = [i for i, a in enumerate(args) if isinstance(a, torch.Tensor)]
        kept_inputs = (args[i] for i in ctx.input_places if i not in joint.bumped)
        # One that is written would not be as it was saved: only a second backward reads it, to write a copy.
        ctx.overwritten = {
            i: args[i].detach() for i in ctx.input_places if i in joint.bumped and not args[i].requires_grad
        }
        # An inference tensor has no version to check, and autograd keeps none: its contents are kept.
        ctx.save_for_backward(*(t.clone() if t.is_inference() else t for t in (*tensors, *kept_inputs)))
        fixed = set(range(joint.results)) - set(joint.differentiable)
        ctx.mark_non_differentiable(*(results[i] for i in fixed if isinstance(results[i], torch.Tensor)))
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        joint: PyJointFunction = ctx.joint
        _check_watched(joint, ctx.watched, [grads[i] is not None for i in joint.differentiable])
        tensors = ctx.saved_tensors
        given = [grads[i] for i in joint.differentiable]
        tangents = tuple(
            in_order(torch.zeros_like(like) if grad is None else grad, order)
            for grad, like, order in zip(given, ctx.like, joint.tangent_orders)
        )
        found: Any
        if torch.is_grad_enabled():
            inputs = list(ctx.inputs)
            rest = iter(tensors[ctx.count :])
            for place in ctx.input_places:
                inputs[place] = ctx.overwritten.get(place) if place in joint.bumped else next(rest)
            found = joint.double(tuple(inputs), tangents) if joint.double is not None else ()
        else:
            with torch._C._AutoDispatchBelowAutograd(), torch._C._DisableAutocast():
                found = call_either(joint.backward, (*ctx.numbers, *tensors[: ctx.count], *tangents))
        decided = [any(given[place] is not None for place in places) for places in joint.reached_by]
        by_input = {i: grad for i, grad, known in zip(joint.grad_inputs, found, decided) if known}
        return (None, *(by_input.get(i) for i in range(len(ctx.inputs))))


def _check_watched(joint: PyJointFunction, watched: list[Any], given: list[bool]) -> None:
    for (kind, index, reached), kept in zip(joint.watched, watched):
        if kept is not None and kept[0]._version != kept[1] and any(given[place] for place in reached):
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an inplace operation: "
                f"{'input' if kind == 'input' else 'result'} {index} of a compiled graph is at version {kept[0]._version}; "
                f"expected version {kept[1]} instead."
            )


def in_order(grad: torch.Tensor, order: tuple[int, ...]) -> torch.Tensor:
    """The gradient, dense in the dimension order that the backward was compiled for."""
    if order == tuple(range(grad.dim())):
        return grad.contiguous()
    inverse = [0] * len(order)
    for place, dim in enumerate(order):
        inverse[dim] = place
    return grad.permute(order).contiguous().permute(inverse)
