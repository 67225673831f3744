"""Values as plain data that one process can write and another compare.

In: any value that a program returns, is given or changes. Out: `snapshot`, nested lists and dicts that JSON holds, in which a tensor is
its class, dtype, shape, strides, flags, values and gradient; and `difference`, the first place where two of them are not the same.
"""

from __future__ import annotations

import dataclasses
import enum
import math
import types
from collections.abc import Mapping, Sequence, Set
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

_DEPTH = 12
_PLAIN = (bool, int, str, type(None))


def snapshot(value: Any, depth: int = 0) -> Any:
    """`value` as plain data."""
    if depth > _DEPTH:
        return "deeper than is looked at"
    if isinstance(value, Tensor):
        return _tensor(value, depth)
    if type(value) in _PLAIN:
        return value
    if isinstance(value, float):
        return {"kind": type(value).__name__, "values": [float(value)]}
    if isinstance(value, complex):
        return {"kind": type(value).__name__, "values": [value.real, value.imag]}
    if isinstance(value, np.ndarray | np.generic):
        return _array(value)
    if isinstance(value, enum.Enum):
        return {"kind": type(value).__qualname__, "name": value.name}
    if isinstance(value, nn.Module):
        return _module(value, depth)
    if isinstance(value, BaseException):
        return {"kind": type(value).__qualname__, "args": snapshot(value.args, depth + 1)}
    return _container(value, depth + 1)


def _container(value: Any, depth: int) -> Any:
    kind = type(value).__qualname__
    if isinstance(value, Mapping):
        return {"kind": kind, "items": [[snapshot(k, depth), snapshot(v, depth)] for k, v in value.items()]}
    if isinstance(value, Set) and not isinstance(value, Sequence):
        return {"kind": kind, "set": sorted((snapshot(each, depth) for each in value), key=repr)}
    if isinstance(value, list | tuple | range) or (isinstance(value, Sequence) and not isinstance(value, str | bytes)):
        return {"kind": kind, "list": [snapshot(each, depth) for each in value]}
    if isinstance(value, type | types.FunctionType | types.BuiltinFunctionType | types.MethodType):
        return {"kind": kind, "name": value.__qualname__}
    if dataclasses.is_dataclass(value):
        fields = {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
        return {"kind": kind, "fields": _items(fields, depth)}
    if isinstance(value, torch.dtype | torch.device | bytes | torch.layout | slice):
        return {"kind": kind, "name": str(value)}
    if type(value).__module__.partition(".")[0] == "torch":
        return {"kind": kind}  # what torch keeps in its own objects differs from process to process
    return {"kind": kind, "fields": _items(getattr(value, "__dict__", {}), depth)}


def _items(fields: Mapping[str, Any], depth: int) -> list[Any]:
    return [[name, snapshot(each, depth)] for name, each in fields.items()]


def _tensor(tensor: Tensor, depth: int) -> dict[str, Any]:
    found: dict[str, Any] = {
        "kind": type(tensor).__qualname__,
        "dtype": str(tensor.dtype),
        "requires_grad": tensor.requires_grad,
        "inference": tensor.is_inference(),
    }
    if not tensor.is_nested:
        found["shape"] = list(tensor.shape)
    if tensor.is_leaf and tensor.requires_grad:
        found["grad"] = None if tensor.grad is None else _without_strides(snapshot(tensor.grad, depth + 1))
    if tensor.layout is torch.jagged:
        parts = {"values": tensor.values(), "offsets": tensor.offsets()}
        return {**found, "parts": _items(parts, depth + 1)}
    if tensor.layout is not torch.strided:
        return {**found, "layout": str(tensor.layout), "values": _values(tensor.to_dense())}
    if type(tensor) not in (Tensor, nn.Parameter, nn.Buffer) and hasattr(tensor, "__tensor_flatten__"):
        names, _ = tensor.__tensor_flatten__()
        return {**found, "parts": _items({name: getattr(tensor, name) for name in names}, depth + 1)}
    found["stride"] = [0 if size == 1 else step for size, step in zip(tensor.shape, tensor.stride(), strict=True)]
    return {**found, "values": _values(tensor)}


def _without_strides(found: Any) -> Any:
    """Eager promises no strides of gradients, nor flags."""
    return (
        {key: each for key, each in found.items() if key not in ("stride", "inference")}
        if isinstance(found, dict)
        else found
    )


def _values(tensor: Tensor) -> list[Any]:
    with torch.no_grad(), torch._C.DisableTorchFunction():
        plain = tensor.detach()
        if plain.is_complex():
            plain = torch.view_as_real(plain.resolve_conj())
        if plain.dtype.is_floating_point and plain.dtype is not torch.float64:
            plain = plain.double()
        return plain.reshape(-1).tolist()


def _array(array: Any) -> dict[str, Any]:
    found = {"kind": type(array).__name__, "dtype": str(array.dtype), "shape": list(array.shape)}
    flat = np.asarray(array).reshape(-1)
    if flat.dtype.kind == "c":
        flat = flat.view(flat.real.dtype)
    return {**found, "values": [float(each) if flat.dtype.kind == "f" else each for each in flat.tolist()]}


def _module(module: nn.Module, depth: int) -> dict[str, Any]:
    tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    plain = {
        f"{path}.{name}": value
        for path, each in module.named_modules()
        for name, value in vars(each).items()
        if not name.startswith("_") and isinstance(value, bool | int | float | str | list | dict | Tensor)
    }
    kind = type(module).__qualname__
    return {"kind": kind, "tensors": _items(tensors, depth + 1), "fields": _items(plain, depth + 1)}


def difference(ours: Any, theirs: Any, where: str = "") -> str:
    """The first place where two snapshots differ, as a sentence; "" where they are the same up to rounding."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        if ours.keys() != theirs.keys():
            return f"{where}: {sorted(ours)} instead of {sorted(theirs)}"
        for key in theirs:
            if key == "values":
                found = _values_differ(ours, theirs, where)
            else:
                found = difference(ours[key], theirs[key], f"{where}.{key}")
            if found:
                return found
        return ""
    if isinstance(theirs, list) and isinstance(ours, list):
        if len(ours) != len(theirs):
            return f"{where}: {len(ours)} instead of {len(theirs)}"
        return next(
            (found for n, pair in enumerate(zip(ours, theirs)) if (found := difference(*pair, f"{where}[{n}]"))), ""
        )
    if type(ours) is type(theirs) and ours == theirs:
        return ""
    return f"{where}: {_short(ours)} instead of {_short(theirs)}"


def _values_differ(ours: dict[str, Any], theirs: dict[str, Any], where: str) -> str:
    mine, expected = ours["values"], theirs["values"]
    if len(mine) != len(expected):
        return f"{where}: {len(mine)} values instead of {len(expected)}"
    dtype = str(theirs.get("dtype", ""))
    rtol, atol = (2e-2, 2e-2) if "16" in dtype and "float" in dtype else (1e-4, 1e-5)
    for number, (a, b) in enumerate(zip(mine, expected)):
        if not _close(a, b, rtol, atol):
            return f"{where}: value {number} is {a!r} instead of {b!r}"
    return ""


def _close(a: Any, b: Any, rtol: float, atol: float) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        if math.isnan(b) or math.isinf(b):
            return a == b or (math.isnan(a) and math.isnan(b))
        return abs(a - b) <= atol + rtol * abs(b)
    return type(a) is type(b) and a == b


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
