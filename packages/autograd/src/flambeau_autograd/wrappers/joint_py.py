"""The Python twin of the native joint function, on `torch.autograd.Function`.

In: compiled forward and backward, plain signature data (see `Signature`). Out: a callable from inputs to the forward's
results, differentiable. Used where the extension is missing, and as the oracle in tests. One thing it cannot do, so that it leaves `led_by`
unread: it is one node for all results, from each of which the engine comes to all inputs. Where eager comes to fewer, hooks of the others see None,
what lies behind them is freed, and an error there is raised.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch

_OVERWRITTEN = (
    "one of the variables needed for gradient computation has been modified by an inplace operation: {} {} of a compiled graph is "
    "at version {}; expected version {} instead."
)
_DETACHED = (
    "Trying to use a saved tensor that has been detached in-place, i.e. with .detach_().This is not supported, please use "
    "out-of-place `.detach()` instead"
)
_TWICE = "Trying to backward through the graph a second time (or directly access saved tensors after they have already been freed)."
_KEEPS_VERSIONS = torch._C.DispatchKeySet(torch._C.DispatchKey.ADInplaceOrView)
"""Its kernels count writes: those that the program makes are counted here (`bumped`)."""


class PyJointFunction:
    """Constructor arguments are those of `_C.JointFunction`, in the same order.

    An exception that a hook on saved tensors raises (`torch.autograd.graph.saved_tensors_hooks`) passes with an attribute `raised_in_hook`, which is
    True: the graph has run, and it is no failure of the graph. Checkpointing ends a forward so that it repeats for the backward.
    """

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
        led_by: tuple[tuple[int, ...], ...],
        saved: tuple[tuple[str, int, bool, int, bool], ...],
        watched: tuple[tuple[str, int, tuple[int, ...], bool], ...],
        frees: tuple[tuple[int, ...], ...],
        bumped: tuple[int, ...],
        double: Any,
        flagged: tuple[tuple[int, ...], ...],
    ) -> None:
        self.forward, self.backward = forward, backward
        self.results, self.extras = results, extras
        self.differentiable, self.tangent_orders = differentiable, tangent_orders
        self.grad_inputs, self.saved, self.bumped, self.double = grad_inputs, saved, bumped, double
        self.reached_by, self.watched, self.frees, self.flagged = reached_by, watched, frees, flagged
        #: Autograd looks at the version counters of these itself.
        self.counted = {(kind, index) for kind, index, _, _, checked in saved if checked}

    def __call__(self, *args: Any) -> tuple[Any, ...]:
        if torch.is_grad_enabled() and any(args[i].requires_grad for i in self.grad_inputs):
            # The histories of inputs, without their memory. Taken before a view among them is written, which gives it another.
            histories = {i: _History.apply(args[i]) for i in self.grad_inputs}
            values = self.run_forward(args, grad_mode=True)
            try:
                return _Joined.apply(self, (values, histories), *args)
            except Exception as error:
                error.raised_in_hook = True  # type: ignore[attr-defined]  # the graph has run
                raise
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


class _History(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.new_zeros(()).expand(tensor.shape)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads[0]


class _Joined(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, joint: PyJointFunction, made: tuple[Any, ...], *args: Any) -> Any:
        values, ctx.histories = made
        results = list(values[: joint.results])
        given = {id(a) for a in args}
        for i in joint.differentiable:
            if id(results[i]) in given:
                results[i] = results[i].detach()
        places = {"input": args, "written": args, "output": results, "extra": values[joint.results :]}
        kept = [_saved(places[kind][index], checked) for kind, index, _, _, checked in joint.saved]
        ctx.set_materialize_grads(False)
        ctx.spent, ctx.freed, ctx.kept = False, set(), None
        ctx.saves = any(is_tensor for _, _, is_tensor, _, _ in joint.saved)
        ctx.joint = joint
        ctx.like = [results[i].detach() for i in joint.differentiable]
        ctx.numbers = [v for v, s in zip(kept, joint.saved) if not s[2]]
        tensors = [v for v, s in zip(kept, joint.saved) if s[2]]
        # A view has the version counter, and no other result keeps the memory of an input.
        watched = [(places[kind][index], kind == "written") for kind, index, _, _ in joint.watched]
        ctx.watched = [
            None if t.is_inference() or (kind, index) in joint.counted else (t.detach(), t._version + more)
            for (t, more), (kind, index, _, _) in zip(watched, joint.watched)
        ]
        ctx.detachable = [
            weakref.ref(places[kind][index]) if whole and places[kind][index].grad_fn is not None else None
            for kind, index, _, whole in joint.watched
        ]
        ctx.shapes = [(a.new_empty(0), a.shape, a.stride()) if isinstance(a, torch.Tensor) else a for a in args]
        ctx.inputs = [None if isinstance(a, torch.Tensor) else a for a in args]
        ctx.input_places = [i for i, a in enumerate(args) if isinstance(a, torch.Tensor)]
        ctx.fed = {i: (weakref.ref(args[i]), _version(args[i])) for i in ctx.input_places if i not in joint.bumped}
        # An inference tensor has no version to check, and autograd keeps none: its contents are kept.
        ctx.save_for_backward(*(t.clone() if t.is_inference() else t for t in tensors))
        fixed = set(range(joint.results)) - set(joint.differentiable)
        ctx.mark_non_differentiable(*(results[i] for i in fixed if isinstance(results[i], torch.Tensor)))
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        joint: PyJointFunction = ctx.joint
        given = [grads[i] for i in joint.differentiable]
        if all(grad is None for grad in given):
            return (None,) * (2 + len(ctx.inputs))
        _check_watched(joint, ctx.watched, ctx.detachable, [grad is not None for grad in given])
        if any(given[place] is not None for place in ctx.freed):
            raise RuntimeError(_TWICE)
        tensors = ctx.kept or (ctx.saved_tensors if not ctx.spent else ())
        if ctx.spent and ctx.saves:
            again = dict(zip(joint.grad_inputs, joint.double.again(tuple(ctx.shapes), tuple(given))))
            return (None, None, *(again.get(i) for i in range(len(ctx.inputs))))
        found: Any
        if torch.is_grad_enabled():
            saved = (*ctx.numbers, *tensors)
            found = joint.double(_inputs_now(ctx), tuple(given), saved) if joint.double is not None else ()
        else:
            tangents = tuple(
                in_order(torch.zeros_like(like) if grad is None else grad, order)
                for grad, like, order in zip(given, ctx.like, joint.tangent_orders)
            )
            with torch._C._AutoDispatchBelowAutograd(), torch._C._DisableAutocast():
                flags = [
                    torch.tensor(any(given[p] is not None for p in places), device=tangents[places[0]].device)
                    for places in joint.flagged
                ]
                args = (*ctx.numbers, *tensors, *tangents, *flags)
                try:
                    found, failed = call_either(joint.backward, args), None
                except Exception as error:
                    found, failed = (), error
            try:
                if failed is not None:
                    found = _rescued(ctx, failed, tuple(given), (*ctx.numbers, *tensors))
            finally:
                # This frame is in its traceback.
                del failed
            relaid = getattr(joint.double, "relaid", None)
            moved = any(g is not None and g is not t for g, t in zip(given, tangents))
            if relaid is not None and (moved or (relaid.hands_on and None in given)):
                known = (tuple(v[1]) if isinstance(v, tuple) else v for v in ctx.shapes)
                found = relaid(found, given, tuple(known) if relaid.changing else ()) or found
        if not torch._C._autograd._get_current_graph_task_keep_graph():
            ctx.freed.update(*(row for row, grad in zip(joint.frees, given) if grad is not None))
            ctx.spent = all(not row or place in ctx.freed for place, row in enumerate(joint.frees))
            # The engine lets go of what was saved, and a backward of other results may still come.
            ctx.kept = None if ctx.spent else tensors
        decided = [any(given[place] is not None for place in places) for places in joint.reached_by]
        by_input = {i: grad for i, grad, known in zip(joint.grad_inputs, found, decided) if known}
        return (None, None, *(by_input.get(i) for i in range(len(ctx.inputs))))


def _inputs_now(ctx: Any) -> tuple[Any, ...]:
    """The inputs of the forward, each as it was, or what became of it."""
    inputs = list(ctx.inputs)
    for place in ctx.input_places:
        shape = (*ctx.shapes[place][1:], ctx.histories.get(place))
        inputs[place] = ("", *shape) if place in ctx.joint.bumped else _unwritten(place, *ctx.fed[place], *shape)
    return tuple(inputs)


def _rescued(ctx: Any, error: Exception, tangents: tuple[Any, ...], saved: tuple[Any, ...]) -> Any:
    """What is given in the place of a compiled backward that raised."""
    rescue = getattr(ctx.joint.double, "rescue", None)
    try:
        if rescue is None:
            raise error
        return rescue(error, _inputs_now(ctx), tangents, saved)
    finally:
        del error


def _version(tensor: torch.Tensor) -> int:
    return -1 if tensor.is_inference() else tensor._version


def _unwritten(place: int, held: Any, version: int, sizes: Any, strides: Any, history: Any) -> Any:
    """What a backward of the backward starts from: an input as it was, or what became of it (see `DoubleBackward`)."""
    tensor = held()
    if tensor is not None and _version(tensor) == version:
        return tensor
    words = "" if tensor is None else _OVERWRITTEN.format("input", place, tensor._version, version)
    return words, sizes, strides, history


def _saved(value: Any, checked: bool) -> Any:
    """A tensor whose writes are not counted is another one in the same memory."""
    return value if checked or not isinstance(value, torch.Tensor) or value.is_inference() else value.data


def _check_watched(joint: PyJointFunction, watched: list[Any], detachable: list[Any], given: list[bool]) -> None:
    for (kind, index, reached, _), kept, held in zip(joint.watched, watched, detachable):
        if not any(given[place] for place in reached):
            continue
        if kept is not None and kept[0]._version != kept[1]:
            what = "result" if kind == "output" else "input"
            raise RuntimeError(_OVERWRITTEN.format(what, index, kept[0]._version, kept[1]))
        tensor = held() if held is not None else None
        if tensor is not None and tensor.grad_fn is None:
            raise RuntimeError(_DETACHED)


def in_order(grad: torch.Tensor, order: tuple[int, ...]) -> torch.Tensor:
    """The gradient, dense in the dimension order that the backward was compiled for."""
    grad = grad.resolve_conj().resolve_neg()
    if order == tuple(range(grad.dim())):
        return grad.contiguous()
    if grad.permute(order).is_contiguous():
        return grad
    inverse = [0] * len(order)
    for place, dim in enumerate(order):
        inverse[dim] = place
    return grad.permute(order).contiguous().permute(inverse)
