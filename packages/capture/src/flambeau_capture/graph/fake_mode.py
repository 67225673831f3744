"""A fake tensor mode that does not import torch's own compiler.

Making a `FakeTensorMode` reads one setting of that compiler's configuration, and its first dispatch asks it to keep out; importing the
package costs seconds. Here the package is in `sys.modules` without its `__init__` having run: its submodules import as usual,
and the first use of any other attribute runs `__init__` in place, so whoever really needs the package gets all of it.

In: nothing. Out: `new_fake_mode()`, to be made and used under `deferred_compiler()`.
"""

from __future__ import annotations

import importlib.util
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

_PACKAGE = "torch." + "_dynamo"
_lock = threading.RLock()


class _DeferredPackage(ModuleType):
    """A package whose `__init__` runs at the first use of an attribute that it would define."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        with _lock:
            if type(self) is _DeferredPackage:
                self.__class__ = ModuleType  # type: ignore[assignment]
                spec = self.__spec__
                assert spec is not None and spec.loader is not None
                spec.loader.exec_module(self)
        return getattr(self, name)


def _disable(function: Any, recursive: bool = True, *, reason: str | None = None, wrapping: bool = True) -> Any:
    """The package's `disable` for torch's own use: it has nothing to keep out until the package is loaded."""
    loaded: list[Any] = []

    def call(*args: Any, **kwargs: Any) -> Any:
        package = sys.modules.get(_PACKAGE)
        if package is None or type(package) is _DeferredPackage:
            return function(*args, **kwargs)
        if not loaded:
            loaded.append(package.disable(function, recursive, reason=reason, wrapping=wrapping))
        return loaded[0](*args, **kwargs)

    return call


@contextmanager
def deferred_compiler() -> Iterator[None]:
    """While this is open, importing the package does not run its `__init__`; afterwards all is as before."""
    name = _PACKAGE.partition(".")[2]
    spec = None if _PACKAGE in sys.modules else importlib.util.find_spec(_PACKAGE)
    if spec is None:
        yield
        return
    package = _DeferredPackage(_PACKAGE)
    package.__spec__ = spec
    package.__file__ = spec.origin
    package.__loader__ = spec.loader
    package.__package__ = _PACKAGE
    package.__path__ = list(spec.submodule_search_locations or ())
    package.__dict__["disable"] = _disable
    with _lock:
        for module in [m for m in sys.modules if m.startswith(_PACKAGE + ".") and m.count(".") == 2]:
            setattr(package, module.rpartition(".")[2], sys.modules[module])
        sys.modules[_PACKAGE] = package
        setattr(torch, name, package)
    try:
        yield
    finally:
        with _lock:
            if type(package) is _DeferredPackage and sys.modules.get(_PACKAGE) is package:
                del sys.modules[_PACKAGE]
                vars(torch).pop(name, None)


_dispatch: Any = FakeTensorMode.__torch_dispatch__
_dispatch = getattr(_dispatch, "__wrapped__", _dispatch)


class TraceFakeMode(FakeTensorMode):
    """`FakeTensorMode` without the wrapper that asks torch's compiler to keep out: no frame of ours is ever given to it."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _dispatch(self, func, types, args, kwargs)


def new_fake_mode() -> FakeTensorMode:
    """A mode for one trace, with static shapes until a shape environment is set."""
    return TraceFakeMode(allow_non_fake_inputs=False)
