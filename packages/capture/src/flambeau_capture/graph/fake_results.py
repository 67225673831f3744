"""`FakeResults`: what an ATen op gave for fakes of the same sizes, strides and types before.

In: each op that runs on the fakes of one mode without symbolic sizes. Out: its results, made of what was kept, for ops that only compute or
only view. Torch keeps such results too, for all modes and kinds of fakes; finding one there takes several times as long, and a model of many
layers runs thousands of like ops.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch._library.utils import is_builtin
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor, in_kernel_invocation_manager

from ..library import functools

_PLAIN = frozenset(
    (
        torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
        torch.float16, torch.bfloat16, torch.float32, torch.float64,
    )
)  # fmt: skip
"""Dtypes whose tensors are described by sizes, strides and offset: a complex one may be conjugated lazily, a quantised one has scales."""
_ATOMS = frozenset((type(None), bool, int, str, torch.dtype, torch.device, torch.layout, torch.memory_format))
_TAGS = (torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape, torch.Tag.inplace_view)
_READS_STORAGE = frozenset(("as_strided", "as_strided_scatter", "as_strided_copy", "set", "resize"))
"""Whether these are errors depends on how large the memory is, which keys leave out."""

#: One result: the position of the argument that it is a view of (None: of none), sizes, strides, offset, dtype, device.
_Result = tuple[int | None, torch.Size, tuple[int, ...], int, torch.dtype, torch.device]


class _Unkept(Exception):
    """A value that is no part of a key."""


class FakeResults:
    """The results of one fake mode for as long as it has no shape environment; it holds no tensor."""

    def __init__(self) -> None:
        self._kept: dict[Any, tuple[type | None, tuple[_Result, ...]]] = {}

    def key(self, mode: Any, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """What the result depends on; None where nothing is kept."""
        if (
            type(func) is not OpOverload
            or mode.in_kernel_invocation
            or not _is_kept(func)
            or torch.is_inference_mode_enabled()
            or torch._C._len_torch_dispatch_stack()
        ):
            return None
        seen: list[Any] = []
        try:
            given = tuple([_described(arg, mode, seen) for arg in args])
            named = tuple([(name, _described(value, mode, seen)) for name, value in kwargs.items()])
        except _Unkept:
            return None
        return (func, torch.get_default_dtype(), given, named)

    def keep(self, key: Any, func: Any, args: Sequence[Any], kwargs: dict[str, Any], out: Any) -> None:
        """Remember a result, if what is kept of it makes it again."""
        parts = out if type(out) in (tuple, list) else (out,)
        viewed = {arg.untyped_storage()._cdata: place for place, arg in enumerate(args) if isinstance(arg, FakeTensor)}
        inner = {leaf.untyped_storage()._cdata for leaf in _tensors((*args, *kwargs.values()))}
        results, storages = [], set[int]()
        for part in parts:
            if type(part) is not FakeTensor or part.constant is not None or not _is_plain(part) or part.requires_grad:
                return
            storage = part.untyped_storage()
            shape, strides, offset = part.shape, part.stride(), part.storage_offset()
            if func.is_view:
                place = viewed.get(storage._cdata)
                if place is None:
                    return
            elif storage._cdata in inner or storage._cdata in storages or offset:
                return
            else:
                place = None
                last = (
                    0 if 0 in shape else 1 + sum((size - 1) * step for size, step in zip(shape, strides, strict=True))
                )
                if storage.nbytes() != last * part.dtype.itemsize:
                    return
            storages.add(storage._cdata)
            results.append((place, shape, strides, offset, part.dtype, part.fake_device))
        self._kept[key] = (type(out) if parts is out else None, tuple(results))

    def find(self, key: Any, mode: Any, args: Sequence[Any]) -> Any:
        """New fakes like those that were given for a like call; None where there was none."""
        found = self._kept.get(key)
        if found is None:
            return None
        made, results = [], found[1]
        with in_kernel_invocation_manager(mode):
            for place, shape, strides, offset, dtype, _ in results:
                if place is None:
                    made.append(torch.empty_strided(shape, strides, dtype=dtype, device="meta"))
                else:
                    empty = torch.empty(0, dtype=dtype, device="meta")
                    made.append(empty.set_(args[place].untyped_storage(), offset, shape, strides))
        fakes = [FakeTensor(mode, meta, result[5]) for meta, result in zip(made, results, strict=True)]
        return fakes[0] if found[0] is None else fakes if found[0] is list else tuple(fakes)


@functools.cache
def _is_kept(func: OpOverload) -> bool:
    """Whether an op writes nothing, and its results follow from how its arguments look."""
    return (
        is_builtin(func)
        and func._schema.name.partition("::")[2] not in _READS_STORAGE
        and not func._schema.is_mutable
        and not any(tag in func.tags for tag in _TAGS)
    )


def _is_plain(fake: FakeTensor) -> bool:
    """Whether nothing tells the tensor from others but how it lies: zeros without memory, of which forward mode is full, are others to the dispatcher."""
    return (
        fake.dtype in _PLAIN
        and fake.layout is torch.strided
        and not (fake.is_neg() or fake.is_inference() or fake._is_zerotensor())
    )


def _described(value: Any, mode: Any, seen: list[Any]) -> Any:
    """The part of a key that an argument is; `seen` are the fakes before it, since one that is given twice is not two. Raises `_Unkept`."""
    kind = type(value)
    if kind in _ATOMS:
        return kind, value
    if kind is FakeTensor:
        if value.fake_mode is not mode or value.constant is not None or not _is_plain(value):
            raise _Unkept
        for place, other in enumerate(seen):
            if other is value:
                return kind, place
        seen.append(value)
        return (
            value.dtype, value.shape, value.stride(), value.storage_offset(), value.fake_device, value.requires_grad,
        )  # fmt: skip
    if kind is float:
        return kind, value.hex()
    if kind is list or kind is tuple:
        return kind, tuple([_described(item, mode, seen) for item in value])
    raise _Unkept


def _tensors(values: Any) -> Iterator[FakeTensor]:
    """The fakes of arguments, also in lists."""
    for value in values:
        if isinstance(value, FakeTensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)
