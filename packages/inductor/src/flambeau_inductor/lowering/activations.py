"""Activations and their derivatives, in the order of operations that eager's kernels use.

In: a tensor (and the gradient of a result). Out: lazy tensors, as ``pointwise.py`` makes them.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from ..devices import device_of
from ..ir import scalar as sc
from ..ir.scalar import Scalar
from .builder import Builder
from .pointwise import elementwise
from .registry import Decline, lowers
from .values import TensorValue


def _require_floating(a: TensorValue) -> None:
    if not a.dtype.is_floating_point:
        raise Decline("eager refuses integers")


def _like(x: Scalar, value: float) -> Scalar:
    return sc.constant(value, x.dtype)


@lowers("silu")
def silu(g: Builder, a: TensorValue) -> TensorValue:
    _require_floating(a)
    return elementwise(g, lambda x: sc.op("truediv", x, sc.op("add", _like(x, 1.0), sc.op("exp", sc.op("neg", x)))), a)


@lowers("gelu")
def gelu(g: Builder, a: TensorValue, *, approximate: str = "none") -> TensorValue:
    _require_floating(a)

    def exact(x: Scalar) -> Scalar:
        inner = sc.op("erf", sc.op("mul", x, _like(x, math.sqrt(0.5))))
        return sc.op("mul", sc.op("mul", x, _like(x, 0.5)), sc.op("add", _like(x, 1.0), inner))

    def tanh(x: Scalar) -> Scalar:
        cube = sc.op("mul", sc.op("mul", x, x), x)
        inner = sc.op("mul", _like(x, math.sqrt(2 / math.pi)), sc.op("add", x, sc.op("mul", _like(x, 0.044715), cube)))
        return sc.op("mul", sc.op("mul", _like(x, 0.5), x), sc.op("add", _like(x, 1.0), sc.op("tanh", inner)))

    return elementwise(g, tanh if approximate == "tanh" else exact, a)


@lowers("elu")
def elu(g: Builder, a: TensorValue, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1) -> TensorValue:
    _require_floating(a)
    bends_below = device_of(a.device).eager.bends_below_zero

    def rule(x: Scalar) -> Scalar:
        straight = sc.op("mul", x, g.constant(scale, x.dtype))
        factor = sc.op("mul", g.constant(alpha, x.dtype), g.constant(scale, x.dtype))
        bent = sc.op("mul", sc.op("expm1", sc.op("mul", x, g.constant(input_scale, x.dtype))), factor)
        if bends_below:
            # Zero belongs to the straight part there: it keeps its sign, whatever the factor.
            return sc.op("where", sc.op("lt", x, _like(x, 0)), bent, straight)
        return sc.op("where", sc.op("gt", x, _like(x, 0)), straight, bent)

    return elementwise(g, rule, a)


@lowers("celu")
def celu(g: Builder, a: TensorValue, alpha: Any = 1.0) -> TensorValue:
    if not isinstance(alpha, int | float) or alpha == 0:
        raise Decline("alpha is zero, or known at run time only")
    return elu(g, a, alpha, 1.0, 1.0 / alpha)


@lowers("leaky_relu")
def leaky_relu(g: Builder, a: TensorValue, negative_slope: float = 0.01) -> TensorValue:
    _require_floating(a)

    def rule(x: Scalar) -> Scalar:
        return sc.op("where", sc.op("gt", x, _like(x, 0)), x, sc.op("mul", x, g.constant(negative_slope, x.dtype)))

    return elementwise(g, rule, a)


@lowers("threshold")
def threshold(g: Builder, a: TensorValue, threshold: Any, value: Any) -> TensorValue:
    if a.dtype is torch.bool:
        raise Decline("bool")

    def rule(x: Scalar) -> Scalar:
        return sc.op("where", sc.op("le", x, g.constant(threshold, x.dtype)), g.constant(value, x.dtype), x)

    return elementwise(g, rule, a)


@lowers("softshrink")
def softshrink(g: Builder, a: TensorValue, lambd: float = 0.5) -> TensorValue:
    _require_floating(a)

    def rule(x: Scalar) -> Scalar:
        high = g.constant(lambd, x.dtype)
        low = sc.op("neg", high)
        inner = sc.op("where", sc.op("isnan", x), x, _like(x, 0))
        below = sc.op("where", sc.op("lt", x, low), sc.op("add", x, high), inner)
        return sc.op("where", sc.op("gt", x, high), sc.op("sub", x, high), below)

    return elementwise(g, rule, a)


@lowers("tanh_backward")
def tanh_backward(g: Builder, grad: TensorValue, out: TensorValue) -> TensorValue:
    return elementwise(g, lambda d, y: sc.op("mul", d, sc.op("sub", _like(d, 1.0), sc.op("mul", y, y))), grad, out)


@lowers("sigmoid_backward")
def sigmoid_backward(g: Builder, grad: TensorValue, out: TensorValue) -> TensorValue:
    return elementwise(g, lambda d, y: sc.op("mul", sc.op("mul", d, sc.op("sub", _like(d, 1.0), y)), y), grad, out)


@lowers("threshold_backward")
def threshold_backward(g: Builder, grad: TensorValue, a: TensorValue, threshold: Any) -> TensorValue:
    def rule(d: Scalar, x: Scalar) -> Scalar:
        return sc.op("where", sc.op("le", x, g.constant(threshold, x.dtype)), _like(d, 0), d)

    return elementwise(g, rule, grad, a)
