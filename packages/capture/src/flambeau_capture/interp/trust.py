"""Which namespaces are assumed not to change, so that what is read from them needs no guard.

In: modules, their globals, classes, functions. Out: `is_trusted_namespace`.
"""

from __future__ import annotations

import sys
import types
from functools import lru_cache
from typing import Any


@lru_cache(maxsize=4096)
def _trusted_name(name: str) -> bool:
    top = name.partition(".")[0]
    return (
        top in ("torch", "flambeau_capture", "torchvision", "torchaudio")
        or top in sys.stdlib_module_names
        or top == "builtins"
    )


def is_trusted_module_name(name: Any) -> bool:
    """Whether a module of that name is assumed not to be patched."""
    return isinstance(name, str) and name != "__main__" and _trusted_name(name)


def is_trusted_namespace(obj: Any) -> bool:
    """Whether the contents of a pinned object (a module, its globals, a class, a function) are assumed not to change."""
    if isinstance(obj, types.ModuleType):
        return is_trusted_module_name(obj.__name__)
    if isinstance(obj, dict):
        return is_trusted_module_name(obj.get("__name__"))
    return is_trusted_module_name(getattr(obj, "__module__", None))
