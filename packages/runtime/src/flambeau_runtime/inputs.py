"""What is checked of each input before a program runs; the native executor does the same in C++."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from .accelerators import accelerator_of, stands_in
from .artifact import InputSpec, Scalar
from .errors import InputError

_LAZY_BITS = ("is_conj", "is_neg", "_is_zerotensor")


def check_count(specs: tuple[InputSpec, ...], values: tuple[Any, ...]) -> None:
    """Raise ``InputError`` when the number of inputs is wrong."""
    if len(values) != len(specs):
        raise InputError(f"the program takes {len(specs)} inputs, got {len(values)}")


def check_scalar(position: int, spec: InputSpec, value: Any) -> int | float | bool:
    """The value of a scalar input, an int, a float or a bool."""
    if isinstance(value, (int, float)):
        return value
    raise InputError(f"{_label(position, spec)} must be a number, got {type(value).__name__}")


def check_tensor(
    position: int,
    spec: InputSpec,
    value: Any,
    scalar: Callable[[int], int | float | bool],
    devices: Sequence[int | None] = (),
) -> torch.Tensor:
    """The tensor to use for this input: ``value``, or a copy with the strides that the program assumes.

    ``scalar`` reads a scalar register; ``devices`` are the ordinals of the CUDA slots, as far as inputs before this one
    have said. Raises ``InputError`` for anything that the program was not compiled for.
    """
    label = _label(position, spec)
    if not isinstance(value, torch.Tensor):
        raise InputError(f"{label} must be a tensor, got {type(value).__name__}")
    if spec.dtype is not None and value.dtype != spec.dtype:
        raise InputError(f"{label} must have dtype {spec.dtype}, got {value.dtype}")
    if spec.device is not None:
        _check_device(label, spec, value, devices)
    if spec.sizes is None and value.layout is torch._mkldnn:
        return value  # a weight that a library has packed; only its calls read it
    if torch._C._dispatch_keys(value).has(torch._C.DispatchKey.Python) or value.layout != torch.strided:
        raise InputError(f"{label} must be a plain strided tensor, got {type(value).__name__} ({value.layout})")
    lazy = any(getattr(value, bit)() for bit in _LAZY_BITS)
    if lazy and spec.mutated:
        raise InputError(f"{label} is a conjugated or negated view and the program writes to it")
    if lazy:
        with torch.no_grad():
            value = value.resolve_conj().resolve_neg().clone()
    if spec.sizes is None:
        return value
    _check_sizes(label, spec, value, scalar)
    return value if spec.strides is None else _with_strides(label, spec, value, scalar)


def _check_device(label: str, spec: InputSpec, value: torch.Tensor, devices: Sequence[int | None]) -> None:
    wanted, got = spec.device, value.device
    assert wanted is not None
    if wanted.type == got.type:
        slot = wanted.index or 0
        ordinal = devices[slot] if accelerator_of(wanted) and slot < len(devices) else None
        if ordinal is not None and ordinal != got.index:
            raise InputError(f"{label} must be on {wanted.type}:{ordinal} as what it is used with, got {got}")
        return
    # A library call may leave a one-element result on the CPU; what reads it on a GPU copies it.
    if spec.mutated or not stands_in(wanted, value):
        raise InputError(f"{label} must be on {wanted.type}, got {got}")


def _check_sizes(label: str, spec: InputSpec, value: torch.Tensor, scalar: Callable[[int], Any]) -> None:
    assert spec.sizes is not None
    sizes = tuple(_resolve(size, scalar) for size in spec.sizes)
    if value.dim() != len(sizes):
        raise InputError(f"{label} must have {len(sizes)} dimensions, got {value.dim()}")
    if any(wanted is not None and wanted != got for wanted, got in zip(sizes, value.shape)):
        shown = ", ".join("any" if size is None else str(size) for size in sizes)
        raise InputError(f"{label} must have sizes [{shown}], got {list(value.shape)}")


def _with_strides(label: str, spec: InputSpec, value: torch.Tensor, scalar: Callable[[int], Any]) -> torch.Tensor:
    assert spec.strides is not None
    wanted = [_resolve(stride, scalar) for stride in spec.strides]
    have = value.stride()
    fits = all(want is None or want == got or size <= 1 for want, got, size in zip(wanted, have, value.shape))
    if fits or value.numel() == 0:
        return value
    if spec.mutated:
        raise InputError(f"{label} must have strides {wanted}, got {list(have)}, and the program writes to it")
    strides = [got if want is None else want for want, got in zip(wanted, have)]
    copy = torch.empty_strided(value.shape, strides, dtype=value.dtype, device=value.device)
    with torch.no_grad():
        return copy.copy_(value)


def _resolve(size: int | Scalar | None, scalar: Callable[[int], Any]) -> Any:
    return scalar(size.index) if isinstance(size, Scalar) else size


def _label(position: int, spec: InputSpec) -> str:
    return f"input {position}" + (f" ({spec.name})" if spec.name else "")
