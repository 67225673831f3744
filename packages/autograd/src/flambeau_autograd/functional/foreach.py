"""Ops on lists of tensors, one tensor at a time: what a compiler fuses is one op a tensor, not one op a list.

In: `aten._foreach_*` (functional overloads), what a gradient scaler does to all gradients, and the fused optimizer steps. Out: the same
values as ordinary calls, recorded through the decompositions; the last two write their arguments. `RULES` maps overloads to rules; a list
op without one (products, ops that torch adds later) is recorded whole.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload

aten = torch.ops.aten
Rule = Callable[[Any, Any, tuple[Any, ...], dict[str, Any]], Any]
#: Overload -> `rule(recorder, func, args, kwargs)`.
RULES: dict[OpOverload, Rule] = {}

_UNARY = (
    "abs", "acos", "asin", "atan", "ceil", "clone", "cos", "cosh", "erf", "erfc", "exp", "expm1", "floor", "frac", "lgamma",
    "log", "log10", "log1p", "log2", "max", "neg", "reciprocal", "round", "rsqrt", "sigmoid", "sign", "sin", "sinh", "sqrt",
    "tan", "tanh", "trunc",
)  # fmt: skip
_BINARY = ("add", "sub", "mul", "div", "pow", "maximum", "minimum", "clamp_max", "clamp_min", "lerp", "copy")
_TERNARY = ("addcmul", "addcdiv")
#: Comparisons with a number go by the name that takes one.
_WITH_NUMBER = {"maximum": "clamp_min", "minimum": "clamp_max"}


def _overloads(name: str) -> list[Any]:
    packet = getattr(aten, name, None)
    found = [] if packet is None else [getattr(packet, overload) for overload in packet.overloads()]
    return [op for op in found if not op._schema.is_mutable]


def _at(value: Any, position: int) -> Any:
    return value[position] if isinstance(value, (list, tuple)) else value


def _one_by_one(name: str) -> Rule:
    def rule(recorder: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Tensor]:
        with recorder:
            return [
                _call(name, [_at(a, i) for a in args], {k: _at(v, i) for k, v in kwargs.items()})
                for i in range(len(args[0]))
            ]

    return rule


def _call(name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    if not isinstance(args[-1], Tensor):
        name = _WITH_NUMBER.get(name, name)
    return getattr(aten, name)(*args, **kwargs)


def _weighted(name: str) -> Rule:
    def rule(recorder: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Tensor]:
        selves, first, second = args[:3]
        weights = args[3] if len(args) > 3 else kwargs.get("value", kwargs.get("scalars", 1))
        with recorder:
            if isinstance(weights, Tensor):
                combine = torch.mul if name == "addcmul" else torch.div
                return [s + w * combine(a, b) for s, a, b, w in zip(selves, first, second, weights.unbind())]
            op = getattr(aten, name)
            return [op(s, a, b, value=_at(weights, i)) for i, (s, a, b) in enumerate(zip(selves, first, second))]

    return rule


def _norm(recorder: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Tensor]:
    order = args[1] if len(args) > 1 else kwargs.get("ord", 2)
    dtype = args[2] if len(args) > 2 else kwargs.get("dtype")
    with recorder:
        return [aten.linalg_vector_norm(t, order, None, False, dtype=dtype) for t in args[0]]


def _power_of_number(recorder: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Tensor]:
    with recorder:
        return [aten.pow.Scalar(args[0], exponent) for exponent in args[1]]


def _zeros(recorder: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Tensor]:
    with recorder:
        return [aten.zeros_like(t) for t in args[0]]


def _wide(tensor: Tensor) -> Tensor:
    """In the type in which the fused kernels compute."""
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


class _Step:
    """The writes of one fused optimizer step, which an overflow found by a gradient scaler cancels."""

    def __init__(self, recorder: Any, kwargs: dict[str, Any]) -> None:
        self.recorder = recorder
        self.scale, self.found_inf = kwargs.get("grad_scale"), kwargs.get("found_inf")
        self.maximize = kwargs["maximize"]

    def gradient(self, grad: Tensor) -> Tensor:
        """The unscaled gradient, which is written back, in the direction of the step."""
        value = _wide(grad)
        if self.scale is not None:
            value = value / self.scale
            self.write(grad, value)
        return -value if self.maximize else value

    def write(self, target: Tensor, value: Tensor) -> None:
        value = value.to(target.dtype)
        if self.found_inf is not None:
            value = torch.where(self.found_inf == 1, target, value)
        self.recorder.mutations.write(target, self.recorder.mutations.match_layout(target, value))


def _adam(decoupled: bool) -> Rule:
    def rule(recorder: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        params, grads, averages, squares, largest, counts = args
        beta1, beta2, decay, lr = (kwargs[k] for k in ("beta1", "beta2", "weight_decay", "lr"))
        with recorder:
            step = _Step(recorder, kwargs)
            for i, target in enumerate(params):
                param, grad = _wide(target), step.gradient(grads[i])
                if decay != 0 and decoupled:
                    param = param - lr * decay * param
                elif decay != 0:
                    grad = grad + param * decay
                average = beta1 * _wide(averages[i]) + (1 - beta1) * grad
                square = beta2 * _wide(squares[i]) + (1 - beta2) * (grad * grad)
                first, second = (1 - torch.pow(beta, counts[i].double()) for beta in (beta1, beta2))
                top = torch.maximum(_wide(largest[i]), square) if kwargs["amsgrad"] else square
                room = top.sqrt() / second.sqrt().to(param.dtype) + kwargs["eps"]
                param = param - (lr / first).to(param.dtype) * average / room
                written = [(target, param), (averages[i], average), (squares[i], square)]
                for tensor, value in written + ([(largest[i], top)] if kwargs["amsgrad"] else []):
                    step.write(tensor, value)

    return rule


def _sgd(recorder: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    params, grads, buffers = args
    decay, momentum, lr = (kwargs[k] for k in ("weight_decay", "momentum", "lr"))
    with recorder:
        step = _Step(recorder, kwargs)
        for i, target in enumerate(params):
            param, grad = _wide(target), step.gradient(grads[i])
            if decay != 0:
                grad = grad + param * decay
            if momentum != 0:
                buffer = grad
                if not kwargs["is_first_step"]:
                    buffer = momentum * _wide(buffers[i]) + (1 - kwargs["dampening"]) * grad
                step.write(buffers[i], buffer)
                grad = grad + momentum * buffer if kwargs["nesterov"] else buffer
            step.write(target, param - lr * grad)


def _unscale(recorder: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """What a gradient scaler does before a step: `found_inf` becomes 1 where a scaled gradient is not finite, and gradients are unscaled in place."""
    grads, found_inf, factor = args
    if not grads:
        return
    mutations = recorder.mutations
    with recorder:
        finite = torch.stack([(_wide(grad).abs() < math.inf).all() for grad in grads]).all()
        found = torch.where(finite, found_inf, 1.0)
        # The same number, which is known when all gradients have been looked at: else the kernels that look at one would go on to compute the
        # step of its parameter, and keep what that writes until the last gradient tells whether it is taken.
        factor = factor + (found - found)
        unscaled = [(_wide(grad) * factor).to(grad.dtype) for grad in grads]
        for target, value in zip((found_inf, *grads), (found, *unscaled), strict=True):
            mutations.write(target, mutations.match_layout(target, value))


def _register(make: Callable[[str], Rule], names: Sequence[str], skip: str = "") -> None:
    for name in names:
        for op in _overloads(f"_foreach_{name}"):
            if op._overloadname != skip:
                RULES[op] = make(name)


_register(_one_by_one, (*_UNARY, *_BINARY), skip="ScalarAndTensor")
_register(_weighted, _TERNARY)
RULES[aten._foreach_norm.Scalar] = _norm
RULES[aten._foreach_pow.ScalarAndTensor] = _power_of_number
RULES[aten._foreach_zero.default] = _zeros
RULES[aten._fused_adam_.default] = RULES[aten._fused_adam_.tensor_lr] = _adam(decoupled=False)
RULES[aten._fused_adamw_.default] = RULES[aten._fused_adamw_.tensor_lr] = _adam(decoupled=True)
RULES[aten._amp_foreach_non_finite_check_and_unscale_.default] = _unscale
RULES[aten._fused_sgd_.default] = RULES[aten._fused_sgd_.tensor_lr] = _sgd
