"""NumPy's scalars as arguments of torch's functions, and its arrays as subscripts of tensors.

In: the arguments of an operation on fakes. Out: the same with Python's numbers, which a graph's code can write; a break where torch makes something else of
those, or refuses NumPy's. A subscript with tensors in place of arrays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_leaves

from ..numpy_classes import SCALARS
from ..signals import GraphBreak
from ..values.ndarrays import ArrayValue, without_masks
from ..values.sequences import TupleValue
from ..values.tensor import TensorValue

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..values.base import Tracer, Value


def as_numbers(argument: Any) -> Any:
    """An argument with Python's numbers in place of NumPy's."""
    kind = type(argument)
    if kind in SCALARS:
        return argument.item()
    if kind is slice:
        return slice(*map(as_numbers, (argument.start, argument.stop, argument.step)))
    if kind in (list, tuple):
        return kind(map(as_numbers, argument))
    if kind is dict:
        return {key: as_numbers(part) for key, part in argument.items()}
    return argument


def _holds_scalar(argument: Any) -> bool:
    kind = type(argument)
    if kind is slice:
        return any(map(_holds_scalar, (argument.start, argument.stop, argument.step)))
    if kind in (list, tuple):
        return any(map(_holds_scalar, argument))
    return any(map(_holds_scalar, argument.values())) if kind is dict else kind in SCALARS


def refuse_other_numbers(t: Tracer, kind: str, target: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    """Break where torch takes a scalar of NumPy's for another number than Python's equal one."""
    if not (any(map(_holds_scalar, args)) or any(map(_holds_scalar, kwargs.values()))):
        return
    given = _kinds(t.graph.run(kind, target, args, kwargs))
    if given != _kinds(t.graph.run(kind, target, as_numbers(list(args)), as_numbers(kwargs))):
        raise GraphBreak("numpy", f"{getattr(target, '__name__', target)} of a scalar of NumPy's")


_INDICES = (torch.int64, torch.int32, torch.bool)


def with_index_arrays(t: Tracer, args: Sequence[Value]) -> Sequence[Value]:
    """The arguments of a subscript of a tensor: an array in it is to torch the tensor of the same elements."""
    owner, key, *rest = args
    key = key.realise(t)
    owner = owner.realise(t)
    sizes = owner.fake.shape if isinstance(owner, TensorValue) else ()
    parts = key.items if isinstance(key, TupleValue) else [key]
    items = [_index(t, part) for part in without_masks([part.realise(t) for part in parts], sizes)]
    return [owner, TupleValue(items, key.cls) if isinstance(key, TupleValue) else items[0], *rest]


def _index(t: Tracer, key: Value) -> Value:
    if not isinstance(key, ArrayValue) or key.is_scalar:
        return key
    tensor = key.tensor(t)
    return tensor if tensor.fake.ndim and tensor.fake.dtype in _INDICES else key


def _kinds(result: Any) -> list[Any]:
    return [(leaf.dtype, leaf.device) if isinstance(leaf, torch.Tensor) else type(leaf) for leaf in tree_leaves(result)]
