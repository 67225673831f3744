"""Whether gradients are linear in the tangents, as those of torch's own formulas are.

In: a `Joint` with its gradients. Out: an op by which they are not, or "". Only an `autograd.Function` has such a backward, one that clips or rounds
what comes in: without one nothing is looked at.
Where a backward is differentiated, eager adds up what reaches the function from its result and from its first gradient, before it runs the function's
backward a second time. Ours has these on two ways, which is the same only as long as the sum of two backwards is the backward of the sum.
"""

from __future__ import annotations

import torch
from torch.fx import Node
from torch.fx.node import map_arg

from ..joint.record import Joint
from .facts import is_size, short_name_of

#: Ops of one operand, and of two of which either decides.
_BENT = frozenset((
    "abs", "acos", "acosh", "amax", "amin", "argmax", "argmin", "asin", "asinh", "atan", "atan2", "atanh", "bitwise_not", "ceil", "celu", "clamp", "clamp_max",
    "clamp_min", "copysign", "cos", "cosh", "elu", "eq", "erf", "erfc", "erfinv", "exp", "exp2", "expm1", "floor", "fmax", "fmin", "fmod", "frac", "ge", "gelu",
    "gt", "hardshrink", "hardsigmoid", "hardswish", "hardtanh", "hypot", "isinf", "isnan", "kthvalue", "le", "leaky_relu", "lgamma", "linalg_vector_norm", "log",
    "log10", "log1p", "log2", "logical_not", "logit", "logsumexp", "lt", "max", "maximum", "median", "min", "minimum", "mish", "mode", "nan_to_num", "ne", "norm",
    "pow", "prod", "reciprocal", "relu", "relu6", "remainder", "round", "rsqrt", "selu", "sgn", "sigmoid", "sign", "signbit", "silu", "sin", "sinc", "sinh",
    "softplus", "softshrink", "sort", "sqrt", "std", "tan", "tanh", "threshold", "topk", "trunc", "var", "_log_softmax", "_softmax",
))  # fmt: skip
#: Linear in each operand, not in both together.
_PRODUCTS = frozenset((
    "mul", "mm", "bmm", "addmm", "baddbmm", "mv", "dot", "addcmul", "convolution", "outer"
))  # fmt: skip


def not_linear(joint: Joint) -> str:
    """The first op of the backward through which a gradient is no linear function of the tangents, or ""."""
    if not joint.functions:
        return ""
    needed = {grad for grad in joint.grads if isinstance(grad, Node)}
    for node in reversed(joint.graph.nodes):
        if node in needed:
            needed.update(node.all_input_nodes)
    coming = set(joint.tangents[: len(joint.differentiable)])
    for node in joint.graph.nodes:
        if node not in needed or node.op != "call_function" or is_size(node):
            continue
        operands = [a for a in node.all_input_nodes if a in coming]
        name = short_name_of(node.target)
        if not operands or name.endswith("_like") or name.startswith("new_"):
            continue
        if name in _BENT or (name == "div" and node.args[1] in coming) or (name in _PRODUCTS and _twice(node, coming)):
            return str(node.target)
        if _is_number(node):
            coming.add(node)
    return ""


def _twice(node: Node, coming: set[Node]) -> bool:
    """Whether two factors come of the tangents; what a product is added to is none."""
    factors = node.args[1:] if short_name_of(node.target) in ("addmm", "baddbmm", "addcmul") else node.args
    found: list[Node] = []
    map_arg(factors, lambda a: found.append(a) if a in coming else None)
    return len(found) > 1


def _is_number(node: Node) -> bool:
    value = node.meta.get("val")
    return not isinstance(value, torch.Tensor) or value.is_floating_point() or value.is_complex()
