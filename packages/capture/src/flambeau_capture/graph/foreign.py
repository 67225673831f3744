"""Operators of others, and their gradients.

In: what a graph is to call, with its arguments on fakes. Out: whether eager differentiates the operator's own kernel: with no kernel for autograd, it
runs that where autograd watches, so that what is computed in it has a history. A call on fakes, or in a compiled graph, has none. And whether the formula that
it has for its gradients asks for values, which no graph holds.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._ops import OpOverload, OpOverloadPacket
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
)
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map

_OF_TORCH = frozenset(
    ("aten", "prims", "quantized", "_quantized", "mkldnn", "mkl", "onednn", "sparse", "prim", "flambeau")
)
_RULES = ("Autograd", "AutogradCPU", "AutogradCUDA", "CompositeImplicitAutograd")
"""Keys of the dispatcher at which an operator says what its gradients are, or that they are those of its parts."""
_FORMULAS = ("Autograd", "AutogradCPU", "AutogradCUDA")
"""Of those, the keys at which it says what they are."""
_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


def is_differentiated_through(target: Any, args: Any, kwargs: Any) -> bool:
    """Whether a call's gradients are what its kernel computes, of which nothing is known."""
    overloads = overloads_of_others(target)
    return _is_differentiated((args, kwargs)) and not all(_has_rule(overload, _RULES) for overload in overloads)


def overloads_of_others(target: Any) -> list[OpOverload]:
    """What a target may call, if that is an operator of others."""
    if isinstance(target, OpOverloadPacket):
        overloads = [getattr(target, name) for name in target.overloads()]
    elif isinstance(target, OpOverload):
        overloads = [target]
    else:
        return []
    return [] if overloads[0].namespace in _OF_TORCH else overloads


def _is_differentiated(given: Any) -> bool:
    leaves = tree_leaves(given)
    return torch.is_grad_enabled() and any(isinstance(leaf, torch.Tensor) and leaf.requires_grad for leaf in leaves)


def _has_rule(overload: OpOverload, keys: tuple[str, ...]) -> bool:
    name = overload.name()
    return any(torch._C._dispatch_has_kernel_for_dispatch_key(name, key) for key in keys)


def formula_reads_values(target: Any, args: Any, kwargs: Any) -> bool:
    """Whether the formula for a call's gradients asks for values, or for sizes that depend on them: it is run on fakes that have none, of the sizes that were seen."""
    overloads = overloads_of_others(target)
    if not overloads or not _is_differentiated((args, kwargs)):
        return False
    if any(overload._schema.is_mutable or not _has_rule(overload, _FORMULAS) for overload in overloads):
        return False
    if not all(map(_may_stand_alone, tree_leaves((args, kwargs)))):
        return False
    mode = FakeTensorMode()
    with _disable_current_modes(), mode:
        given, named = tree_map(_alone, (args, kwargs))
        begins = [leaf for leaf in tree_leaves((given, named)) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
        try:
            results = tree_leaves(target(*given, **named))
            ends = [result for result in results if isinstance(result, torch.Tensor) and result.requires_grad]
            if ends:
                torch.autograd.grad(ends, begins, [torch.ones_like(end) for end in ends], allow_unused=True)
        except (DataDependentOutputException, DynamicOutputShapeException):
            return True
        except Exception:
            # Whatever it raises, it raises where the graph is differentiated, which says so.
            return False
    return False


def _may_stand_alone(leaf: Any) -> bool:
    """Whether another value of the same facts can be made, with numbers for what is symbolic."""
    if isinstance(leaf, torch.Tensor):
        return type(leaf) is FakeTensor and leaf.layout is torch.strided and all(map(_may_stand_alone, leaf.shape))
    return not isinstance(leaf, _SYMBOLIC) or leaf.node.has_hint()


def _alone(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor):
        sizes, strides = ([_number(part) for part in parts] for parts in (leaf.shape, leaf.stride()))
        made = torch.empty_strided(sizes, strides, dtype=leaf.dtype, device=leaf.device)
        return made.requires_grad_(leaf.requires_grad)
    return _number(leaf)


def _number(value: Any) -> Any:
    return value.node.hint if isinstance(value, _SYMBOLIC) else value
