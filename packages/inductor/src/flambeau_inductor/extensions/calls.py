"""Functions of a program's own: how they are called, and what errors say of what they give.

In: a call. Out: its result, or ``ExtensionError`` that names what failed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..errors import ExtensionError, FlambeauInductorError


def told(what: str, call: Callable[[], Any], *passed_on: type[Exception]) -> Any:
    """What ``call`` gives; what it raises but for inductor's own errors and those ``passed_on`` as ExtensionError."""
    try:
        return call()
    except FlambeauInductorError:
        raise
    except passed_on:
        raise
    except Exception as error:
        raise ExtensionError(f"{what} failed: {type(error).__name__}: {error}") from error


def facts(value: Any) -> str:
    """Type, sizes and device of a tensor; anything else as it prints."""
    if not isinstance(value, torch.Tensor):
        return repr(value)
    return f"{value.dtype} [{', '.join(map(str, value.shape))}] on {value.device}"
