"""Wrapper tensors: subclasses that hold other tensors and say how they are taken apart (`__tensor_flatten__`) and put together (`__tensor_unflatten__`).

In: tensors, real or fake. Out: `is_wrapper_class`, `is_wrapper`, the tensors inside (`inner_tensors`), whether all of them are fakes (`is_fake`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

_PLAIN = (torch.Tensor, torch.nn.Parameter, FakeTensor)


def is_wrapper_class(cls: type) -> bool:
    """Whether tensors of this class hold others, which torch's dispatcher hands to `__torch_dispatch__`."""
    return (
        cls not in _PLAIN
        and issubclass(cls, torch.Tensor)
        and hasattr(cls, "__tensor_flatten__")
        and hasattr(cls, "__tensor_unflatten__")
    )


def is_wrapper(value: Any) -> bool:
    """Whether a value is a tensor that holds others."""
    return is_wrapper_class(type(value))


def inner_tensors(wrapper: Any) -> Iterator[Any]:
    """The plain tensors inside of a wrapper, in the order in which it names them; those of wrappers inside of it too."""
    for name in wrapper.__tensor_flatten__()[0]:
        inner = getattr(wrapper, name)
        if is_wrapper(inner):
            yield from inner_tensors(inner)
        elif isinstance(inner, torch.Tensor):
            yield inner


def is_fake(tensor: torch.Tensor) -> bool:
    """Whether a tensor is a fake, or a wrapper of nothing but fakes."""
    if is_wrapper(tensor):
        return all(is_fake(inner) for inner in inner_tensors(tensor))
    return isinstance(tensor, FakeTensor)
