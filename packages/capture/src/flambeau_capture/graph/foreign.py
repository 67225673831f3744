"""Operators of others that say nothing about gradients.

In: what a graph is to call, with its arguments on fakes. Out: whether eager differentiates the operator's own kernel: with no kernel for autograd, it
runs that where autograd watches, so that what is computed in it has a history. A call on fakes, or in a compiled graph, has none.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._ops import OpOverload, OpOverloadPacket
from torch.utils._pytree import tree_leaves

_OF_TORCH = frozenset(
    ("aten", "prims", "quantized", "_quantized", "mkldnn", "mkl", "onednn", "sparse", "prim", "flambeau")
)
_RULES = ("Autograd", "AutogradCPU", "AutogradCUDA", "CompositeImplicitAutograd")
"""Keys of the dispatcher at which an operator says what its gradients are, or that they are those of its parts."""


def is_differentiated_through(target: Any, args: Any, kwargs: Any) -> bool:
    """Whether a call's gradients are what its kernel computes, of which nothing is known."""
    if isinstance(target, OpOverloadPacket):
        overloads = [getattr(target, name) for name in target.overloads()]
    elif isinstance(target, OpOverload):
        overloads = [target]
    else:
        return False
    if overloads[0].namespace in _OF_TORCH or not torch.is_grad_enabled():
        return False
    if not any(isinstance(leaf, torch.Tensor) and leaf.requires_grad for leaf in tree_leaves((args, kwargs))):
        return False
    return not all(_has_rule(overload) for overload in overloads)


def _has_rule(overload: OpOverload) -> bool:
    name = overload.name()
    return any(torch._C._dispatch_has_kernel_for_dispatch_key(name, key) for key in _RULES)
