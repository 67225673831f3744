"""Which calls eager refuses for the shapes of their operands, for their strides, or for the memory that they share, where a run on fakes lets them pass.

In: a call of torch with fakes, before it is made. Out: a `Trial`; asked once the result is known to be small, it makes the call for real with made-up
tensors that lie as the fakes do, two in one storage where those are. Only small ones are tried: that costs less than the run on fakes,
and empty tensors, numbers, and single elements are what kernels look at and fakes do not. A write that reads the memory it changes may be larger. A call counts as refused where it raises the same error whatever
the elements are; one that raises for some of them (an index, a matrix without an inverse) is none of ours.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from operator import setitem
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

from .quiet import no_warnings
from .refusals import KNOWN, is_asked, is_write, name_of

#: Elements of an operand or result; of one in a write that reads the memory it changes.
_MOST_ELEMENTS = 1024
_MOST_ELEMENTS_SHARED = 1 << 20
#: Of names of calls that want their whole numbers to add up.
_OF_COUNTS = re.compile("repeat_interleave|segment_reduce")
_ERRORS = (RuntimeError, LookupError, TypeError, ValueError, ArithmeticError, AssertionError, AttributeError)

#: Said of a view in strides beyond an operand's memory: that of a result may be larger in eager, a loss keeps the one of its elements.
BEYOND_MEMORY = "whose memory may be larger in eager"

#: In place of a type: the operand is one that came before.
_SAME = object()
#: Types whose values are what they are.
_PLAIN = frozenset((int, float, bool, complex, str, type(None), torch.dtype, torch.device, type))
_answers: dict[Any, bool] = {}


class Trial:
    """One call that can be made for real: `call` describes its arguments, in which tensors with one number share a storage."""

    __slots__ = ("_call", "_key", "_kind", "_most", "_target")

    def __init__(self, kind: str, target: Any, call: Any, most: int) -> None:
        self._kind, self._target, self._call, self._most = kind, target, call, most
        self._key = (target, call, torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu"))

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
            with _disable_current_modes(), torch.no_grad(), no_warnings():
                first = self._error(_FILLS[0])
                if first is None or issubclass(first[0], torch.linalg.LinAlgError):
                    return False
                return all(self._error(fill) == first for fill in _FILLS[1:])
        finally:
            torch.set_rng_state(numbers)

    def _error(self, fill: Any) -> tuple[type, str] | None:
        storages: dict[int, torch.Tensor] = {}
        tensors: list[torch.Tensor] = []

        def made(part: tuple[Any, ...]) -> Any:
            kind, value = part[:2]
            if kind is torch.Tensor:
                tensors.append(_made(part, fill, storages))
                return tensors[-1]
            if kind is tuple or kind is list:
                return kind(map(made, value))
            if kind is dict:
                return {name: made(item) for name, item in value}
            if kind is slice:
                return slice(*map(made, value))
            return tensors[value] if kind is _SAME else value

        args, kwargs = made(self._call)
        try:
            getattr(args[0], self._target)(*args[1:], **kwargs) if self._kind == "call_method" else self._target(
                *args, **kwargs
            )
        except _ERRORS as error:
            return type(error), str(error)
        return None


def trial_of(kind: str, target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Trial | None:
    """The trial of a call; None for one that is not small, or that cannot be made with made-up operands."""
    if not is_asked(kind, target) or _OF_COUNTS.search(name_of(kind, target)):
        return None
    most = _most_elements(kind, target, args, kwargs)
    described = _Description(most)
    try:
        call = described.part((tuple(args), dict(kwargs)))
    except _Untried:
        return None
    # Of a call without tensors nothing but the type is what kernels look at.
    wanted = described.has_tensors() or kwargs.get("dtype") is not None
    return Trial(kind, target, call, most) if wanted else None


class _Untried(Exception):
    """An operand is not small, or cannot be made up."""


class _Description:
    """Describes the arguments of one call, so that equal descriptions are calls with the same answer: (type, value), or a tensor's layout."""

    __slots__ = ("_groups", "_most", "_places")

    def __init__(self, most: int) -> None:
        self._most = most
        self._groups: dict[int, int] = {}
        self._places: dict[int, int] = {}

    def has_tensors(self) -> bool:
        """Whether there is a tensor among what was described."""
        return bool(self._places)

    def part(self, value: Any) -> tuple[Any, ...]:
        """One argument. Raises `_Untried`."""
        kind = type(value)
        if kind in _PLAIN:
            return kind, value  # 1, 1.0 and True are equal, and different operands
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        if kind is tuple or kind is list:
            return kind, tuple(map(self.part, value))
        if kind is dict:
            return kind, tuple([(name, self.part(item)) for name, item in value.items()])
        if kind is slice:
            return kind, tuple(map(self.part, (value.start, value.stop, value.step)))
        if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            value = value.node.hint
            if value is None:
                raise _Untried
        elif (
            isinstance(value, torch.Generator)
            or callable(value)
            or (isinstance(value, (tuple, list, dict)) and kind is not torch.Size)
        ):
            raise _Untried
        return type(value), value

    def _tensor(self, tensor: torch.Tensor) -> tuple[Any, ...]:
        place = self._places.get(id(tensor))
        if place is not None:
            return _SAME, place
        self._places[id(tensor)] = len(self._places)
        if tensor.layout is not torch.strided or _count(tensor.shape) > self._most:
            raise _Untried
        if tensor.dtype not in KNOWN or tensor.is_conj() or tensor.is_neg() or tensor.device.type != "cpu":
            raise _Untried
        storage = tensor.untyped_storage()
        size, stride = _numbers(tensor.shape), _numbers(tensor.stride())
        offset, held = _hint(tensor.storage_offset()), _hint(storage.nbytes())
        if size is None or stride is None or offset is None or held is None:
            raise _Untried
        group = self._groups.setdefault(storage._cdata, len(self._groups))
        return torch.Tensor, tensor.dtype, size, stride, offset, group, held


def _most_elements(kind: str, target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> int:
    stores = target is setitem or target == "__setitem__"
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
    known = tuple(map(_hint, sizes))
    return None if None in known else known  # type: ignore[return-value]  # there is no None in it


def _count(sizes: Sequence[Any]) -> int:
    count = 1
    for size in sizes:
        number = _hint(size)
        if number is None:
            return _MOST_ELEMENTS + 1
        count *= number
    return count
