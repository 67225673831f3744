"""Which objects are constants: immutable through and through, and compared by value.

In: an object. Out: `is_constant_object`, `is_annotation`, `is_nan`, and the classes of which there are constants.
"""

from __future__ import annotations

import enum
import types
import typing
from typing import Any

import torch

from .class_names import HEAP_TYPE, class_module
from .numpy_classes import SCALARS, is_numpy_constant

PLAIN_TYPES: frozenset[type] = frozenset(
    (int, float, bool, complex, str, bytes, type(None), type(...), type(NotImplemented))
)
"""Types of constants that a code object can hold."""

TORCH_TYPES: frozenset[type] = frozenset(
    (torch.dtype, torch.device, torch.layout, torch.memory_format, torch.finfo, torch.iinfo, torch.qscheme)
)
"""Immutable torch objects."""

MADE_ANEW: frozenset[type] = frozenset((
    int, float, complex, str, bytes, tuple, frozenset, range, slice, torch.Size, torch.device, torch.finfo, torch.iinfo, *SCALARS
))  # fmt: skip
"""Those of which equal ones may be several objects."""
ONE_OF_EACH = range(-5, 257)
"""Python has one object of each of these integers."""

PLACEMENTS = "torch.distributed.tensor.placement_types"
"""The module of what says how a distributed tensor lies on its mesh; importing it takes longer than most programs need."""

_SUBSCRIPTED = (
    *(form[int] for form in (vars(typing)["List"], vars(typing)["Optional"])),
    typing.Callable[[int], int], typing.Literal[1], typing.Annotated[int, 1],
)  # fmt: skip
_OF_TYPING = tuple(type(each) for each in (*vars(typing).values(), *_SUBSCRIPTED))
_ANNOTATIONS: frozenset[type] = frozenset(
    (
        types.UnionType,
        typing.TypeVar,
        *(kind for kind in _OF_TYPING if kind.__module__ == "typing" and not issubclass(kind, type)),
    )
)
"""Classes of what annotations are made of. Such objects do not change."""

UNHASHABLE: frozenset[type] = frozenset((torch.finfo, torch.iinfo))
"""Those that cannot be hashed: what one of them is about is its `dtype`."""


def is_annotation(obj: Any) -> bool:
    """Whether it is what annotations are made of; not a program's own generic class with its parameters, which is called as the class is."""
    if type(obj) not in _ANNOTATIONS:
        return False
    return getattr(getattr(obj, "__origin__", None), "__module__", "typing") in (
        "builtins",
        "typing",
        "collections",
        "collections.abc",
    )


def is_nan(obj: Any) -> bool:
    """Whether it is a number that equals no other, itself included: which one it is, containers that compare by identity first tell."""
    return type(obj) in (float, complex, *SCALARS) and bool(obj != obj)


def is_constant_object(obj: Any) -> bool:
    """Whether `obj` is immutable through and through and compares by value."""
    kind = type(obj)
    if kind in PLAIN_TYPES or kind in TORCH_TYPES or issubclass(kind, enum.Enum):
        return True
    if is_numpy_constant(obj):
        return True
    if kind is range:
        return True
    if kind in (tuple, frozenset, torch.Size):
        return all(is_constant_object(item) and _is_hashed(item) for item in obj)
    if kind is slice:
        return all(is_constant_object(item) for item in (obj.start, obj.stop, obj.step))
    return _is_native_enum(kind) or class_module(kind) == PLACEMENTS


def _is_native_enum(kind: type) -> bool:
    """Whether a class is an enum of C++ that pybind11 made: its members compare and hash by the number that they stand for."""
    return type(kind) is _BOUND_CLASS and "__members__" in vars(kind)


_BOUND_CLASS: type = type(torch._C._SDPBackend)


def _is_hashed(part: Any) -> bool:
    """Whether what holds this constant can be hashed and compared, and no code of the program's runs for that: the class of a member may have some.
    (NumPy's scalars are compared one by one: a guard on what holds them would take equal numbers of other classes for them.)"""
    kind = type(part)
    if not issubclass(kind, enum.Enum):
        return kind not in UNHASHABLE and kind not in SCALARS
    owners = [next(base for base in kind.__mro__ if name in vars(base)) for name in ("__hash__", "__eq__")]
    return all(owner is enum.Enum or not owner.__flags__ & HEAP_TYPE for owner in owners)
