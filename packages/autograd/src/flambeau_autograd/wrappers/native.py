"""Chooses between the native joint function and its Python twin.

In: whether the native one is wanted. Out: a type with the constructor of `JointFunction`. A missing or stale extension
gives one warning; the twin is slower, not wrong.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any

import torch

from .. import log
from .joint_py import PyJointFunction

#: What the extension's constructors take; `csrc/module.cpp` has the same number.
INTERFACE = 8


@functools.cache
def native_module() -> Any:
    """The extension `_C`, or None when it is missing or was built for another torch."""
    try:
        _C: Any = importlib.import_module("flambeau_autograd._C")
    except ImportError as error:
        reason = str(error)
    else:
        if torch.__version__ == _C.torch_version and getattr(_C, "interface", 1) == INTERFACE:
            return _C
        reason = f"built for torch {_C.torch_version} and other sources, running {torch.__version__}"
    log.logger.warning(
        log.NATIVE_MISSING, reason=reason, hint="build it again: python tools/build_native.py --inplace autograd"
    )
    return None


def joint_type(native: bool) -> Any:
    """`_C.JointFunction`, or `PyJointFunction`."""
    module = native_module() if native else None
    return PyJointFunction if module is None else module.JointFunction


def write_behind(node: Any) -> Any:
    """The node of the write that autograd's node for a write through a view stands for; None without the extension, which alone sees it."""
    look = getattr(native_module(), "write_behind", None)
    return None if look is None else look(node)
