"""Which calls eager refuses for the shapes of their operands, for their strides, or for the memory that they share, where a run on fakes lets them pass.

In: a call of torch with fakes, before it is made. Out: a `Trial`; asked once the result is known to be small, it makes the call for real with made-up
tensors that lie as the fakes do, two in one storage where those are. Only small ones are tried: that costs less than the run on fakes,
and empty tensors, numbers, and single elements are what kernels look at and fakes do not. A write that reads the memory it changes may be larger. A call counts as refused where it raises the same error whatever
the elements are; one that raises for some of them (an index, a matrix without an inverse) is none of ours.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

from .refusals import KNOWN, is_asked, is_write

#: Elements of an operand or result; of one in a write that reads the memory it changes.
_MOST_ELEMENTS = 1024
_MOST_ELEMENTS_SHARED = 1 << 20
#: Parts of names of calls that want their whole numbers to add up.
_OF_COUNTS = ("repeat_interleave", "segment_reduce")
_ERRORS = (RuntimeError, LookupError, TypeError, ValueError, ArithmeticError, AssertionError, AttributeError)

#: In place of a type: the operand is one that came before.
_SAME = object()
_answers: dict[Any, bool] = {}


class Trial:
    """One call that can be made for real: `leaves` describes its operands, of which those with one number share a storage."""

    __slots__ = ("_key", "_kind", "_leaves", "_most", "_spec", "_target")

    def __init__(self, kind: str, target: Any, leaves: tuple[Any, ...], spec: Any, most: int) -> None:
        self._kind, self._target, self._leaves, self._spec, self._most = kind, target, leaves, spec, most
        self._key = (target, spec, leaves, torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu"))

    def refuses(self, result: Any) -> bool:
        """Whether eager raises, whatever the elements are; `result` is what the run on fakes gave."""
        try:
            answer = _answers.get(self._key)
        except TypeError:
            return False
        if answer is None:
            parts = [part for part in pytree.tree_leaves(result) if isinstance(part, torch.Tensor)]
            if not all(_count(part.shape) <= self._most for part in parts):
                return False
            answer = _answers[self._key] = self._fails()
        return answer

    def _fails(self) -> bool:
        numbers = torch.get_rng_state()
        try:
            with _disable_current_modes(), torch.no_grad(), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the program's own call gives its warning
                first = self._error(_FILLS[0])
                if first is None or issubclass(first[0], torch.linalg.LinAlgError):
                    return False
                return all(self._error(fill) == first for fill in _FILLS[1:])
        finally:
            torch.set_rng_state(numbers)

    def _error(self, fill: Any) -> tuple[type, str] | None:
        storages: dict[int, torch.Tensor] = {}
        leaves: list[Any] = []
        for leaf in self._leaves:
            if leaf[0] is _SAME:
                leaves.append(leaves[leaf[1]])
            else:
                leaves.append(_made(leaf, fill, storages) if leaf[0] is torch.Tensor else leaf[1])
        args, kwargs = pytree.tree_unflatten(leaves, self._spec)
        try:
            getattr(args[0], self._target)(*args[1:], **kwargs) if self._kind == "call_method" else self._target(
                *args, **kwargs
            )
        except _ERRORS as error:
            return type(error), str(error)
        return None


def trial_of(kind: str, target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Trial | None:
    """The trial of a call; None for one that is not small, or that cannot be made with made-up operands."""
    most = _most_elements(kind, target, args, kwargs)
    if any(isinstance(value, torch.Tensor) and _count(value.shape) > most for value in args):
        return None
    leaves, spec = pytree.tree_flatten((tuple(args), dict(kwargs)))
    if not any(isinstance(leaf, torch.Tensor) for leaf in leaves) or not is_asked(kind, target, *_OF_COUNTS):
        return None
    described: list[tuple[Any, ...]] = []
    groups: dict[int, int] = {}
    places: dict[int, int] = {}
    for place, leaf in enumerate(leaves):
        if not isinstance(leaf, torch.Tensor):
            if isinstance(leaf, (torch.SymInt, torch.SymFloat, torch.SymBool)):
                leaf = leaf.node.hint
                if leaf is None:
                    return None
            elif isinstance(leaf, torch.Generator) or callable(leaf):
                return None
            # 1, 1.0 and True are equal, and different operands.
            described.append((type(leaf), leaf))
            continue
        if (first := places.setdefault(id(leaf), place)) != place:
            described.append((_SAME, first))
            continue
        if leaf.layout is not torch.strided or leaf.device.type != "cpu" or leaf.dtype not in KNOWN:
            return None
        if leaf.is_conj() or leaf.is_neg():
            return None
        size, stride = _numbers(leaf.shape), _numbers(leaf.stride())
        offset, held = _hint(leaf.storage_offset()), _hint(leaf.untyped_storage().nbytes())
        if size is None or stride is None or offset is None or held is None or _count(size) > most:
            return None
        group = groups.setdefault(leaf.untyped_storage()._cdata, len(groups))
        described.append((torch.Tensor, leaf.dtype, size, stride, offset, group, held))
    return Trial(kind, target, tuple(described), spec, most)


def _most_elements(kind: str, target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> int:
    stores = target is operator.setitem or target == "__setitem__"
    if not (stores or is_write(kind, target)) and "out" not in kwargs:
        return _MOST_ELEMENTS
    storages = [
        value.untyped_storage()._cdata for value in (*args, kwargs.get("out")) if isinstance(value, torch.Tensor)
    ]
    return _MOST_ELEMENTS if len(set(storages)) == len(storages) else _MOST_ELEMENTS_SHARED


def _made(leaf: tuple[Any, ...], fill: Any, storages: dict[int, torch.Tensor]) -> torch.Tensor:
    _, dtype, size, stride, offset, group, held = leaf
    memory = storages.get(group)
    if memory is None:
        # Pages of zeros that nobody touches cost nothing: the storage of a small operand may be large.
        memory = storages[group] = torch.zeros(held, dtype=torch.uint8)
    made = torch.empty(0, dtype=dtype).set_(memory.untyped_storage(), offset, size, stride)
    if fill is not None:
        own = made[tuple(slice(None) if step else slice(1) for step in stride)]
        own.copy_(fill(own.numel(), dtype).view(own.shape))
    return made


def _mixed(count: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.tensor([0, 1, 1, 0, 1], dtype=dtype).repeat(count // 5 + 1)[:count].clone()


#: What operands are filled with: (count, dtype) -> tensor; None: zeros.
_FILLS: tuple[Any, ...] = (
    None,
    lambda count, dtype: torch.ones(count, dtype=dtype),
    _mixed,
)


def _hint(number: Any) -> int | None:
    return number if isinstance(number, int) else number.node.hint


def _numbers(sizes: Sequence[Any]) -> tuple[int, ...] | None:
    known = tuple(number for size in sizes if (number := _hint(size)) is not None)
    return known if len(known) == len(sizes) else None


def _count(sizes: Sequence[Any]) -> int:
    count = 1
    for size in sizes:
        number = _hint(size)
        if number is None:
            return _MOST_ELEMENTS + 1
        count *= number
    return count
