"""What of NumPy is a constant, which of its dtypes torch has too, and how arrays and tensors become each other.

In: nothing (this is near the bottom of the layer). Out: `SCALARS`, `DTYPES`, `is_numpy_constant`, and the functions that compiled code calls:
`as_tensor`, `as_array`, `as_scalar`, `fresh_copy`, `view_of`. Without NumPy the tables are empty, and nothing else is ever called: what is done with an
array breaks the graph then.
"""

from __future__ import annotations

from contextlib import nullcontext
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

_FIRST = 2
"""The version from which on dtypes do not depend on the values of numbers, and scalars are as strong as arrays."""


def _installed() -> Any:
    try:
        found = import_module("numpy")
    except ImportError:
        return None
    return found if int(found.__version__.partition(".")[0]) >= _FIRST else None


numpy: Any = _installed()
"""NumPy, or None where it is not installed, or one whose rules are others."""

_SHARED: Final = (
    "bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "complex64", "complex128",
)  # fmt: skip
_NAMES: Final = () if numpy is None else _SHARED

DTYPES: Final[dict[Any, torch.dtype]] = {numpy.dtype(name): getattr(torch, name) for name in _NAMES}
"""NumPy's dtypes that torch computes with."""
TORCH_DTYPES: Final[dict[torch.dtype, Any]] = {theirs: ours for ours, theirs in DTYPES.items()}
"""The other way round."""
SCALARS: Final[frozenset[type]] = frozenset(dtype.type for dtype in DTYPES)
"""Classes of NumPy's scalars that are constants."""
_SINGLE: Final = frozenset(map(id, DTYPES))
ARRAY: Final[Any] = None if numpy is None else numpy.ndarray
"""The class of arrays."""
FACTS: Final[tuple[Any, ...]] = () if numpy is None else (numpy.finfo, numpy.iinfo)
"""The classes of what tells of dtypes; such objects do not change."""
FUNCTIONS: Final[tuple[Any, ...]] = () if numpy is None else (numpy.ufunc, type(numpy.sum))
"""The classes of NumPy's functions that are neither Python's nor C's."""


def is_numpy_constant(obj: Any) -> bool:
    """Whether it is a scalar of these classes, or one of these dtypes (of which there is one object each)."""
    return type(obj) in SCALARS or id(obj) in _SINGLE


def floating_errors_raise() -> Any:
    """A context in which NumPy raises FloatingPointError where it else warns, or raises, or does nothing, as the program has told it."""
    return nullcontext() if numpy is None else numpy.errstate(all="raise")


def as_tensor(array: Any) -> torch.Tensor:
    """A tensor in the memory of an array. Raises TypeError or ValueError where there is none that can stand for it."""
    if type(array) is not ARRAY or id(array.dtype) not in _SINGLE:
        raise TypeError("no plain array, or of a dtype that is not traced")
    if not array.flags.writeable:
        raise ValueError("torch warns at arrays that may not be written")
    return torch.from_numpy(array)


def as_array(tensor: torch.Tensor) -> Any:
    """The array in the memory of a tensor."""
    return tensor.numpy()


def as_scalar(tensor: torch.Tensor) -> Any:
    """The number that a tensor of no dimensions holds, as one of NumPy's scalars."""
    return tensor.numpy()[()]


def fresh_copy(array: Any) -> Any:
    """An array of its own, laid out as the given one."""
    return array.copy(order="K")


def view_of(root: Any, offset: int, shape: Sequence[int], strides: Sequence[int], dtype: Any) -> Any:
    """Part of an array that owns its memory, given in bytes."""
    return ARRAY(shape, dtype, root if root.flags.c_contiguous else root.T, offset, strides)


def offset_in(root: Any, view: Any) -> int:
    """Where a view begins in the memory of an array, in bytes."""
    where: int = view.__array_interface__["data"][0] - root.__array_interface__["data"][0]
    return where
