"""torch.optim: the wrappers around `step`, and operators whose scalar is a tensor because a step counter is one.

In: `optimizer.step()` inside a captured function, or as one. Out: one graph, which serves the first step too. While capturing,
torch's optimizers keep step counters as tensors, so that what was computed from a Python number in eager is computed from a tensor
here: operators that read their scalar out of such a tensor are written out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.optim.optimizer import (
    _disable_dynamo_if_unsupported,
    _get_value,
    _stack_if_compiling,
    _use_grad_for_differentiable,
)

from ..class_names import module_name
from ..library import contextlib
from ..replacements import replaces, replaces_wrapper
from ..signals import GraphBreak
from ..values.base import Value
from ..values.constants import ConstantValue
from ..values.sequences import ListValue, TupleValue
from ..values.symbolic import SymbolicValue
from ..values.tensor import TensorValue
from .optimizer_state import make_state

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..values.base import Tracer

    Args = Sequence[Value]
    Kwargs = Mapping[str, Value]


def _step(self: Any) -> None:
    """What is wrapped to learn the wrapper's code."""


_USE_GRAD = _use_grad_for_differentiable(_step).__code__
"""The wrapper that sets the grad mode for a step; for torch's own compiler it also breaks the graph, which serves nothing here."""


@replaces_wrapper(_USE_GRAD)
def use_grad(t: Tracer, function: Value, args: Args, kwargs: Kwargs) -> Value:
    """The step under the grad mode that the optimizer asks for."""
    real = function.real()
    cells = dict(zip(real.__code__.co_freevars, real.__closure__ or (), strict=True))
    step = t.wrapper.wrap_pinned(cells["func"].cell_contents)
    if all(value.is_constant() and value.constant() is None for value in (*args[1:], *kwargs.values())):
        make_state(t, args[0].realise(t))
    return t.caller.call(t.wrapper.wrap_pinned(_under_its_grad_mode), [step, *args], kwargs)


_FALLBACK: Any = _disable_dynamo_if_unsupported()(_step)
"""The wrapper that keeps a step with counters on a GPU from torch's own compiler. Scalars that are tensors are written out below."""


@replaces_wrapper(_FALLBACK.__code__)
def maybe_fallback(t: Tracer, function: Value, args: Args, kwargs: Kwargs) -> Value:
    """The function itself."""
    real = function.real()
    cells = dict(zip(real.__code__.co_freevars, real.__closure__ or (), strict=True))
    return t.caller.call(t.wrapper.wrap_pinned(cells["func"].cell_contents), args, kwargs)


_EXCLUDED: Any = torch._disable_dynamo(_step)
"""The wrapper that keeps methods of optimizers from torch's own compiler, before one of them was called: `replacements` knows it from then on."""


@replaces_wrapper(_EXCLUDED.__code__)
def not_for_the_peer(t: Tracer, function: Value, args: Args, kwargs: Kwargs) -> Value:
    """A method of an optimizer itself; what else torch keeps from its compiler is as it stands."""
    real = function.real()
    if str(module_name(real)).startswith("torch.optim."):
        return t.caller.call(t.wrapper.wrap_pinned(real.__wrapped__), args, kwargs)
    return t.caller.inline_function(function, real, args, kwargs)


def _under_its_grad_mode(step: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
    before = torch.is_grad_enabled()
    try:
        torch.set_grad_enabled(optimizer.defaults["differentiable"])
        return step(optimizer, *args, **kwargs)
    finally:
        torch.set_grad_enabled(before)


@replaces(_get_value)
def get_value(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """A counter as the number that eager reads out of it: what is computed from it has the precision of Python's numbers."""
    t.told_compiling = True
    value = args[0]
    if isinstance(value, TensorValue) and value.fake.dtype.is_floating_point:
        return t.recorder.record("call_method", "double", [value], {})
    return value


@replaces(_stack_if_compiling)
def step_sizes(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """The list itself, as in eager: each parameter's step waits for its own counter alone."""
    t.told_compiling = True
    return args[0]


def _foreach(name: str, written_out: Any) -> None:
    target = getattr(torch, name)

    @replaces(target)
    def replacement(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        if len(args) == 4 and not kwargs:
            values = args[3].realise(t)
            if isinstance(values, TensorValue):
                return t.caller.call(
                    t.wrapper.wrap_pinned(written_out), [*args[:3], values.call_method(t, "unbind", [], {})], {}
                )
            # Eager has numbers here; a program's own list of tensors is refused.
            if t.told_compiling and isinstance(values, ListValue | TupleValue) and _has_tensor(t, values):
                return t.caller.call(t.wrapper.wrap_pinned(written_out), [*args[:3], values], {})
        return t.recorder.record("call_function", target, args, kwargs)


def _has_tensor(t: Tracer, values: ListValue | TupleValue) -> bool:
    """Whether a list of scalars has one that was computed from a counter."""
    return any(isinstance(item.realise(t), TensorValue) for item in values.items)


def _each_addcdiv_(targets: Any, firsts: Any, seconds: Any, values: Any) -> None:
    torch._foreach_add_(targets, [a / b * v for a, b, v in zip(firsts, seconds, values, strict=True)])


def _each_addcmul_(targets: Any, firsts: Any, seconds: Any, values: Any) -> None:
    torch._foreach_add_(targets, [a * b * v for a, b, v in zip(firsts, seconds, values, strict=True)])


def _each_addcdiv(targets: Any, firsts: Any, seconds: Any, values: Any) -> Any:
    return [x + a / b * v for x, a, b, v in zip(targets, firsts, seconds, values, strict=True)]


def _each_addcmul(targets: Any, firsts: Any, seconds: Any, values: Any) -> Any:
    return [x + a * b * v for x, a, b, v in zip(targets, firsts, seconds, values, strict=True)]


_foreach("_foreach_addcdiv_", _each_addcdiv_)
_foreach("_foreach_addcmul_", _each_addcmul_)
_foreach("_foreach_addcdiv", _each_addcdiv)
_foreach("_foreach_addcmul", _each_addcmul)


def _fused(step: Any) -> None:
    @replaces(step)
    def replacement(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        """The step of all parameters at once; a learning rate that changes goes in as a tensor, for the other overload takes a plain number."""
        lr = kwargs.get("lr")
        given = dict(kwargs)
        if lr is not None and isinstance(number := lr.realise(t), SymbolicValue):
            given["lr"] = t.recorder.record(
                "call_function", torch.scalar_tensor, [number], {"dtype": ConstantValue(torch.float64)}
            )
        return t.recorder.record("call_function", step, args, given)


for _name in ("_fused_adam_", "_fused_adamw_", "_fused_sgd_", "_fused_adagrad_"):
    _fused(getattr(torch, _name))


class ProfilerRange(Value):
    """`record_function(name)`: a range of the profiler, which has no place inside of a graph."""

    __slots__ = ("name",)

    def __init__(self, name: Value) -> None:
        super().__init__()
        self.name = name

    def python_type(self) -> type:
        return torch.autograd.profiler.record_function

    def get_attribute(self, t: Tracer, name: str) -> Value:
        from ..values.bound import BoundBuiltin

        if name in ("__enter__", "__exit__", "_recreate_cm"):
            return BoundBuiltin(self, name)
        raise GraphBreak("unsupported-attribute", f"attribute {name!r} of a profiler range")

    def call_method(self, t: Tracer, name: str, args: Args, kwargs: Kwargs) -> Value:
        return ConstantValue(False) if name == "__exit__" else self

    def call(self, t: Tracer, args: Args, kwargs: Kwargs) -> Value:
        """As a decorator."""
        return t.caller.call(t.wrapper.wrap_pinned(contextlib.ContextDecorator.__call__), [self, *args], kwargs)

    def rebuild(self, e: Any) -> None:
        """Cut in the middle, the range has no beginning: what leaves it does nothing."""
        e.pinned(_EndedRange)
        e.call(0)


class _EndedRange(contextlib.nullcontext[None], contextlib.ContextDecorator):
    """A range of which no profiler hears."""


@replaces(torch.autograd.profiler.record_function)
def record_function(t: Tracer, args: Args, kwargs: Kwargs) -> Value:
    """Ranges of the profiler end at the border of a graph."""
    return ProfilerRange(args[0] if args else kwargs["name"])
