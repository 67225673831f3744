"""Methods of tensors with a scalar argument, written out as operators that take a tensor for it.

In: the name of a method. Out: `WRITTEN_OUT`, the argument's name and a function that computes the same.
"""

from __future__ import annotations

from typing import Any


def _addcdiv(target: Any, first: Any, second: Any, value: Any) -> Any:
    return target + first / second * value


def _addcmul(target: Any, first: Any, second: Any, value: Any) -> Any:
    return target + first * second * value


def _addcdiv_(target: Any, first: Any, second: Any, value: Any) -> Any:
    return target.add_(first / second * value)


def _addcmul_(target: Any, first: Any, second: Any, value: Any) -> Any:
    return target.add_(first * second * value)


def _add(target: Any, other: Any, alpha: Any) -> Any:
    return target + other * alpha


def _add_(target: Any, other: Any, alpha: Any) -> Any:
    return target.add_(other * alpha)


def _sub(target: Any, other: Any, alpha: Any) -> Any:
    return target - other * alpha


def _sub_(target: Any, other: Any, alpha: Any) -> Any:
    return target.sub_(other * alpha)


WRITTEN_OUT: dict[str, tuple[str, Any]] = {
    "addcdiv": ("value", _addcdiv),
    "addcdiv_": ("value", _addcdiv_),
    "addcmul": ("value", _addcmul),
    "addcmul_": ("value", _addcmul_),
    "add": ("alpha", _add),
    "add_": ("alpha", _add_),
    "sub": ("alpha", _sub),
    "sub_": ("alpha", _sub_),
}
