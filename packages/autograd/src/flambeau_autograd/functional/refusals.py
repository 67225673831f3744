"""Which calls eager's own kernels refuse for the types of their operands, or for their slopes.

In: an overload and its traced arguments. Out: True where eager raises for the dtypes or numbers given. Fake tensors and the formulas of
decompositions say nothing of this: the kernel alone does, when it is asked. So it is asked, once for each combination, with tensors
of two elements a dimension; and it counts only where the same call with float32 passes. A refused call stays whole: it raises at run
time, with eager's type and words.

Only kernels that check what they are given are asked: those of torch's internal ops and of its backward formulas trust their callers, and
made-up operands could end the process. Kernels on a GPU are never asked: a check that fails there takes the device's context with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._ops import OpOverload
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

#: Types that every kernel of floating-point numbers knows.
_COMMON = (torch.float32, torch.float64)
_EXTENT = 2

_answers: dict[Any, bool] = {}


def refused(op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether eager's kernel raises for these types; False where it cannot be told."""
    if op.namespace != "aten" or torch.Tag.nondeterministic_seeded in op.tags:
        return False
    if op in _OF_RESULTS and _is_of_a_result(op, args):
        return True
    leaves, spec = pytree.tree_flatten((args, kwargs))
    kinds = {leaf.dtype for leaf in leaves if isinstance(leaf, torch.Tensor)}
    if kinds:
        kinds.update(leaf for leaf in leaves if isinstance(leaf, torch.dtype))
    numbers = any(isinstance(leaf, (bool, int, float, complex)) for leaf in leaves)
    if not _checks_operands(op) or any(leaf.device.type != "cpu" for leaf in leaves if isinstance(leaf, torch.Tensor)):
        return False
    if not kinds or (len(kinds) == 1 and kinds <= {*_COMMON}) or (kinds == {torch.bfloat16} and not numbers):
        return False
    described = tuple(map(_describe, leaves))
    if None in described:
        return False
    key = (op, spec, described)
    try:
        answer = _answers.get(key)
    except TypeError:
        return False
    if answer is None:
        answer = _answers[key] = _ask(op, spec, described)
    return answer


#: Backward formulas that may be given the function's result, and where the slope below zero and that fact stand among the arguments.
_OF_RESULTS = {torch.ops.aten.leaky_relu_backward.default: (2, 3), torch.ops.aten.elu_backward.default: (1, 4)}


def _is_of_a_result(op: OpOverload, args: tuple[Any, ...]) -> bool:
    """Whether a result is all that is known (the function ran in place), and tells nothing, its sign not being its argument's."""
    slope, is_result = (args[place] for place in _OF_RESULTS[op])
    return bool(is_result) and isinstance(slope, (int, float)) and slope < 0


#: Internal by their names, and called by the program all but directly.
_CHECKED = frozenset({"_softmax", "_log_softmax", "_prelu_kernel"})


def _checks_operands(op: OpOverload) -> bool:
    """Whether the kernel of an op may be called with made-up operands."""
    name = op._schema.name.rpartition("::")[2]
    if torch.Tag.pointwise in op.tags or name in _CHECKED:
        return True
    return not name.startswith("_") and "backward" not in name and not any(part in name for part in _LIBRARIES)


#: Kernels of libraries. Some read workspaces that an earlier call has filled, and crash on others; oneDNN's convolutions of bfloat16 crash
#: where a dilated weight is larger than what it is laid over.
_LIBRARIES = ("mkldnn", "cudnn", "miopen", "conv")


def _describe(leaf: Any) -> Any:
    """A leaf as part of a key: what is needed to make a small one of its kind; None where that cannot be done."""
    if isinstance(leaf, torch.Tensor):
        if leaf.layout is not torch.strided:
            return None
        return (torch.Tensor, leaf.dtype, leaf.dim(), leaf.device)
    if isinstance(leaf, (torch.SymInt, torch.SymFloat, torch.SymBool, torch.Generator)):
        return None
    # 1, 1.0 and True are equal, and different operands.
    return (type(leaf), leaf)


def _ask(op: OpOverload, spec: Any, described: tuple[Any, ...]) -> bool:
    first = next(place for place, part in enumerate(described) if part[0] is torch.Tensor)
    with _disable_current_modes(), torch.no_grad():
        if _passes(op, spec, described, lambda place, dtype: dtype):
            return False
        return _passes(op, spec, described, lambda place, dtype: torch.float32) or _passes(
            op, spec, described, lambda place, dtype: torch.float32 if place == first else dtype
        )


def _passes(op: OpOverload, spec: Any, described: tuple[Any, ...], dtype_of: Callable[[int, Any], torch.dtype]) -> bool:
    def made(place: int, part: Any) -> Any:
        if part[0] is torch.Tensor:
            return torch.ones((_EXTENT,) * part[2], dtype=dtype_of(place, part[1]), device=part[3])
        return dtype_of(place, part[1]) if part[0] is torch.dtype else part[1]

    args, kwargs = pytree.tree_unflatten([made(place, part) for place, part in enumerate(described)], spec)
    try:
        op(*args, **kwargs)
    except (RuntimeError, IndexError, TypeError, ValueError):
        return False
    return True
