"""What the sweep runs: an architecture, how its model is made, and what it is called with.

In: nothing. Out: `Architecture`, and `Ready`, a model with the keyword arguments of its call. Making one draws from torch's generator alone, so that
a seed says which model it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from attrs import frozen
from torch import Tensor, nn


@frozen
class Ready:
    """A model that can be called.

    Attributes:
        model: float32, on the CPU, in training mode.
        inputs: keyword arguments of a call.
        labels: further arguments of a call in training, with which the model returns a loss.
    """

    model: nn.Module
    inputs: dict[str, Any]
    labels: dict[str, Any]


@frozen
class Architecture:
    """One entry of the sweep.

    Attributes:
        name: the library's name for it, with the library's before it.
        library: the row of the table that counts it.
        make: makes the model and its inputs; raises where no tiny configuration of it can be made.
    """

    name: str
    library: str
    make: Callable[[], Ready]


class NotTiny(Exception):
    """No small model of the architecture could be made, or called in eager; says why."""


def tensors_of(value: Any) -> list[Tensor]:
    """The tensors in what a model returned, in order: in containers, and in objects that hold them as attributes (caches)."""
    found: list[Tensor] = []
    _collect(value, found, set())
    return found


def _collect(value: Any, found: list[Tensor], seen: set[int]) -> None:
    if isinstance(value, Tensor):
        found.append(value)
        return
    if isinstance(value, str | bytes | int | float | type | nn.Module | torch.dtype | torch.device) or value is None:
        return
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, dict):
        parts = list(value.values())
    elif isinstance(value, list | tuple | set):
        parts = list(value)
    else:
        parts = (
            [part for name, part in vars(value).items() if not name.startswith("_")]
            if hasattr(value, "__dict__")
            else []
        )
    for part in parts:
        _collect(part, found, seen)
