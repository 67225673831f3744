"""Calls of ops that write to their arguments and have no functional twin: a library's own.

In: the op and its arguments (fakes). Out: one node, torch's `auto_functionalized(op, **arguments)`, whose value is what the op returns
followed by the new contents of each written argument. No node of the graph is ever written, so no pass has to ask.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import getitem
from typing import Any

import torch
from torch import Tensor
from torch._higher_order_ops.auto_functionalize import auto_functionalized, can_auto_functionalize
from torch._subclasses.fake_tensor import FakeTensor

from ..errors import UnsupportedMutation
from .overlap import folds_onto_itself, overlaps


def record_opaque_write(recorder: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run `func` on the fakes, record the call, and let what it wrote be the contents of its written arguments.

    Raises `UnsupportedMutation` where one call on copies would not be what the call on the arguments is: they share memory.
    """
    arguments = func._schema.arguments
    given = {a.name: kwargs.get(a.name, a.default_value) for a in arguments}
    given.update((a.name, value) for a, value in zip(arguments, args))
    names = [a.name for a in arguments if a.alias_info is not None and a.alias_info.is_write]
    if not can_auto_functionalize(func) or any(r.alias_info is not None for r in func._schema.returns):
        raise UnsupportedMutation(f"{func} writes to its arguments and has no functional form")
    _refuse_shared_memory(recorder, func, names, given)
    with recorder.python_kernels():
        out = func(*args, **kwargs)
    new = [_contents(recorder, given[name]) for name in names]
    parts = (*out, *new) if isinstance(out, tuple) else (out, *new)
    node = recorder.add_node(auto_functionalized, (func,), recorder.operands(recorder.adopt_tree(given)), parts)
    for place, part in enumerate(parts):
        _name(recorder, node, place, part)
    for name, contents in zip(names, new):
        for tensor, written in zip(tensors_in(given[name]), tensors_in(contents)):
            recorder.mutations.write(tensor, written)
    return out


def _refuse_shared_memory(recorder: Any, func: Any, names: list[str], given: dict[str, Any]) -> None:
    written = [tensor for name in names for tensor in tensors_in(given[name])]
    others = [tensor for name, value in given.items() if name not in names for tensor in tensors_in(value)]
    for place, target in enumerate(written):
        if not isinstance(target, FakeTensor):
            raise UnsupportedMutation(f"{func} writes to a constant of the graph")
        if folds_onto_itself(target):
            raise UnsupportedMutation(f"{func} writes to a tensor whose elements share memory")
        cell = recorder.value_of(target).cell
        for other in (*written[:place], *others):
            if isinstance(other, FakeTensor) and recorder.value_of(other).cell is cell and overlaps(target, other):
                raise UnsupportedMutation(f"{func} is given a tensor that it writes, and another in the same memory")


def _contents(recorder: Any, target: Any) -> Any:
    """What stands for the new contents of a written argument: a tensor in its layout, a list of them, or None."""
    if isinstance(target, (list, tuple)):
        return [_contents(recorder, part) for part in target]
    if target is None:
        return None
    with recorder.fake_mode, torch.no_grad():
        return torch.empty_strided(target.size(), target.stride(), dtype=target.dtype, device=target.device)


def _name(recorder: Any, node: Any, place: int, part: Any) -> None:
    """Nodes for the tensors in one part of the call's value."""
    if isinstance(part, Tensor):
        recorder.fresh(part, recorder.add_node(getitem, (node, place), {}, part))
    elif isinstance(part, list):
        several = recorder.add_node(getitem, (node, place), {}, part)
        for position, item in enumerate(part):
            _name(recorder, several, position, item)


def tensors_in(value: Any) -> Iterator[Tensor]:
    """Every tensor in nested lists, tuples and dicts."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for v in value:
            yield from tensors_in(v)
    elif isinstance(value, dict):
        for v in value.values():
            yield from tensors_in(v)
