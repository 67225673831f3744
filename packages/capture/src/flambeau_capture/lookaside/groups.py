"""Tensors grouped by their device and type, as torch's functions over lists of gradients group them.

In: a list of lists of tensors. Out: the same dict as in eager, in its order, made while tracing: which group a tensor belongs to is known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _foreach_utils as utilities

from ..replacements import replaces
from ..signals import GraphBreak
from ..signatures import signature_of
from ..values.base import Value
from ..values.constants import ConstantValue
from ..values.mappings import DictValue
from ..values.sequences import ListValue, TupleValue
from ..values.tensor import TensorValue

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..values.base import Tracer

_GROUPS: Any = utilities._group_tensors_by_device_and_dtype


@replaces(_GROUPS)
def group_tensors(t: Tracer, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Value:
    """`_group_tensors_by_device_and_dtype(lists, with_indices)`."""
    signature = signature_of(_GROUPS)
    assert signature is not None
    try:
        given = signature.bind(*args, **kwargs).arguments
    except TypeError:
        raise GraphBreak("unsupported-call", "tensors are grouped with arguments that are not known") from None
    parts = t.operators.iterate_all(given["tensorlistlist"])
    lists = [[_member(t, item) for item in t.operators.iterate_all(part)] for part in parts]
    numbered = "with_indices" in given and bool(t.folder.concrete(given["with_indices"]))
    owners = {id(value.fake): value for part in lists for value in part if isinstance(value, TensorValue)}
    fakes = [[value.fake if isinstance(value, TensorValue) else None for value in part] for part in lists]
    with t.graph.unpatched, t.graph.fake_mode:
        try:
            found = torch._C._group_tensors_by_device_and_dtype(fakes, numbered)
        except RuntimeError as error:
            raise GraphBreak("operator-error", f"grouping tensors raised: {error}") from None
    items: dict[Any, tuple[Value, Value]] = {}
    for key, (parts, indices) in found.items():
        members: list[Value] = [
            ListValue([owners[id(fake)] if fake is not None else ConstantValue(None) for fake in part])
            for part in parts
        ]
        told = t.wrapper.from_python(key)
        items[t.wrapper.hashable(told)] = (
            told,
            TupleValue([ListValue(members), t.wrapper.from_python(list(indices))], tuple),
        )
    return DictValue(items, dict)


def _member(t: Tracer, value: Value) -> Value:
    value = value.realise(t)
    if not isinstance(value, TensorValue) and not (value.is_constant() and value.constant() is None):
        raise GraphBreak("unsupported-call", f"{value.describe()} among tensors that are grouped")
    return value
