"""Warnings that kernels give and fakes do not.

In: each ATen op that runs on fakes, with its arguments. Out: the warnings of its kernel, by a call of it with a few elements for which it warns too.
What torch warns of before it comes to a kernel it warns of with fakes as well (`quiet.hearing`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from .quiet import Heard, hearing

_Args = Sequence[Any]
_Kwargs = Mapping[str, Any]
_Example = Callable[[], Any]
_Rule = Callable[[Any, _Args, _Kwargs], _Example | None]
"""Of an op and its arguments: what makes its kernel give the same warning; None where it gives none."""


class Kernels:
    """The kernels of one operation that warn."""

    def __init__(self) -> None:
        self._examples: list[_Example] = []

    def note(self, func: Any, args: _Args, kwargs: _Kwargs) -> None:
        """An ATen op that the operation calls."""
        rule = _RULES.get(func)
        if rule is not None and (example := rule(func, args, kwargs)) is not None:
            self._examples.append(example)

    def __bool__(self) -> bool:
        return bool(self._examples)

    def warn(self, *, each_time: bool) -> list[Heard]:
        """The warnings of one call (`each_time`: see `hearing`)."""
        root = sys._getframe().f_code
        with _disable_current_modes(), torch.no_grad(), hearing(root, each_time=each_time) as heard:
            for example in self._examples:
                example()
        return heard


def _spread(func: Any, args: _Args, kwargs: _Kwargs) -> _Example | None:
    """`std`, `var`: of no more elements than are subtracted."""
    value = args[0]
    given = kwargs.get("dim", args[1] if len(args) > 1 and not isinstance(args[1], bool) else None)
    dims = range(value.ndim) if given is None or given == [] else given
    correction = kwargs.get("correction", 1)
    for old in (arg for arg in args[1:] if isinstance(arg, bool)):
        correction = int(old)
        break
    count: Any = 1
    for dim in dims if value.ndim else ():
        count = count * value.shape[dim]
    if (1 if correction is None else correction) < count:
        return None
    dtype = value.dtype
    return lambda: _function(func)(torch.zeros(1, dtype=dtype))


def _function(func: Any) -> Any:
    """The function in torch's namespace: an op that is called itself warns on standard error."""
    return getattr(torch, func.overloadpacket.__name__)


def _real(value: Any, kwargs: _Kwargs) -> bool:
    dtype = kwargs.get("dtype")
    is_complex = value.dtype.is_complex if isinstance(value, torch.Tensor) else isinstance(value, complex)
    return is_complex and dtype is not None and not dtype.is_complex


def _cast(func: Any, args: _Args, kwargs: _Kwargs) -> _Example | None:
    return _discard if _real(args[0], kwargs) else None


def _copied(func: Any, args: _Args, kwargs: _Kwargs) -> _Example | None:
    return _discard if _real(args[1], {"dtype": args[0].dtype}) else None


def _normalised(func: Any, args: _Args, kwargs: _Kwargs) -> _Example | None:
    return _cast(func, args, {"dtype": args[2] if len(args) > 2 else kwargs.get("dtype")})


def _discard() -> Any:
    return torch.zeros(1, dtype=torch.complex64).to(torch.float32)


def _place() -> torch.Tensor:
    return torch.zeros(1, dtype=torch.int64)


def _searched(func: Any, args: _Args, kwargs: _Kwargs) -> _Example | None:
    """`bucketize` and `searchsorted` copy what does not lie in one piece."""
    lying = [not isinstance(arg, torch.Tensor) or arg.is_contiguous() for arg in args[:2]]
    if all(lying):
        return None
    first, second = (torch.zeros(2, 2)[0] if fine else torch.zeros(2, 2)[:, 0] for fine in lying)
    return lambda: _function(func)(first, second)


def _always(example: Callable[[], Any]) -> _Rule:
    return lambda func, args, kwargs: example


_CHOLESKY = _always(lambda: torch.cholesky(torch.eye(1)))
_TRIANGULAR = _always(lambda: torch.triangular_solve(torch.eye(1), torch.eye(1)))
_INDEX_REDUCE = _always(lambda: torch.zeros(1).index_reduce(0, _place(), torch.zeros(1), "prod"))
_SCATTER = _always(lambda: torch.zeros(1).scatter(0, _place(), torch.zeros(1), reduce="add"))
_BY_NAME: dict[str, _Rule] = {
    **{f"{name}.{kind}": _spread for name in ("std", "var", "std_mean", "var_mean") for kind in ("default", "dim", "correction")},
    "_to_copy.default": _cast, "copy_.default": _copied, "copy.default": _copied, "softmax.int": _normalised, "log_softmax.int": _normalised,
    "cholesky.default": _CHOLESKY, "triangular_solve.default": _TRIANGULAR, "index_reduce.default": _INDEX_REDUCE,
    "index_reduce_.default": _INDEX_REDUCE, "scatter.reduce": _SCATTER, "scatter_.reduce": _SCATTER, "bucketize.Tensor": _searched,
    "searchsorted.Tensor": _searched,
}  # fmt: skip


def _rules() -> dict[Any, _Rule]:
    """By op; not every torch has them all."""
    found = {}
    for name, rule in _BY_NAME.items():
        packet, kind = name.split(".")
        op = getattr(getattr(torch.ops.aten, packet, None), kind, None)
        if op is not None:
            found[op] = rule
    return found


_RULES = _rules()
