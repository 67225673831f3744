"""The native module, checked: it must exist and must have been built for the torch that is installed.

Everything in this package takes `_C` from here.
"""

from __future__ import annotations

import sys

import torch

from .errors import NativeModuleError, UnsupportedPythonError

if not (3, 11) <= sys.version_info[:2] <= (3, 13) or sys.implementation.name != "cpython":
    raise UnsupportedPythonError(f"flambeau-capture cannot run on {sys.implementation.name} {sys.version.split()[0]}")

try:
    import flambeau_capture._C as _C
except ImportError as error:
    raise NativeModuleError(f"the native module of flambeau-capture cannot be loaded: {error}") from error

if str(torch.__version__) != _C.TORCH_VERSION:
    raise NativeModuleError(
        f"flambeau-capture's native module was built for torch {_C.TORCH_VERSION}, and {torch.__version__} is installed"
    )

__all__ = ["_C"]
