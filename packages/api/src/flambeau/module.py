"""Compiled modules: what `flambeau.compile(module)` returns.

In: an `nn.Module` and the native regions that run its call and its `forward`. Out: an instance of the same class (of a subclass that
differs in `__call__` and `forward` alone) over the *same* `__dict__`: parameters, buffers, hooks, attributes and `state_dict` keys are
those of the original, live, with no prefix. It deep-copies and pickles as (original, compile arguments).
"""

from __future__ import annotations

import copy
import functools
import inspect
import types
from collections.abc import Callable
from typing import Any, TypeVar

import torch

from flambeau_capture import Region

ModuleT = TypeVar("ModuleT", bound=torch.nn.Module)


def compiled_module(
    original: ModuleT,
    region: Callable[..., Any],
    again: Callable[[Any], Any],
    pickled: tuple[Any, ...],
) -> ModuleT:
    """The original's twin whose `__call__` goes through `region`.

    Args:
        original: stays as it is and uncompiled; both share every attribute.
        region: called with the call's arguments.
        again: compiles another module or function as this one was compiled, with the same arguments and records.
        pickled: what `__reduce_ex__` gives, of the original and the keyword arguments of `flambeau.compile`.
    """
    # Not by the class's own `__new__`, which may make another class (fx.GraphModule, fully_shard).
    twin: ModuleT = object.__new__(_twin_class(type(original), original, region, again, pickled))
    object.__setattr__(twin, "__dict__", original.__dict__)
    return twin


def _twin_class(
    base: type[torch.nn.Module],
    original: torch.nn.Module,
    region: Callable[..., Any],
    again: Callable[[Any], Any],
    pickled: tuple[Any, ...],
) -> Any:
    """The subclass of `base` that a twin is an instance of."""

    def call(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        return region(*args, **kwargs)

    def reduce_ex(self: torch.nn.Module, protocol: int) -> Any:
        return pickled

    def deepcopy(self: torch.nn.Module, memo: dict[int, Any]) -> torch.nn.Module:
        result: torch.nn.Module = again(copy.deepcopy(original, memo))
        return result

    again_for = functools.partial(_twin_class, original=original, region=region, again=again, pickled=pickled)
    namespace = {
        "__module__": base.__module__,
        "__qualname__": base.__qualname__,
        "__doc__": base.__doc__,
        "__slots__": (),
        "__call__": call,
        "__reduce_ex__": reduce_ex,
        "__deepcopy__": deepcopy,
        "__getattr__": _attribute_of(base, original),
        "__class__": _ClassOfTwin(original, again_for),
        "_flambeau_region": region,
        "_flambeau_original": original,
        "_orig_mod": original,
    }
    own = inspect.getattr_static(base, "forward")
    if isinstance(own, types.FunctionType):  # a ScriptModule has none of Python
        namespace["forward"] = _method(own, again(types.MethodType(own, original)))
    for name in _ASKED_OF_THE_ORIGINAL:
        if hasattr(base, name):
            namespace[name] = _delegate(original, name)
    metaclass: Any = type(base)
    return metaclass(base.__name__, (base,), namespace)


_CLASS: Any = vars(object)["__class__"]


class _ClassOfTwin:
    """`__class__` of a twin: the original's. Who gives it another one (parametrisations make a class with properties) changes both."""

    def __init__(self, original: torch.nn.Module, twin_class: Callable[[Any], Any]) -> None:
        self._original, self._twin_class = original, twin_class

    def __get__(self, twin: Any, owner: type) -> Any:
        if twin is None:
            return type(owner)
        own = type(twin)  # the program may have derived another one
        return type(self._original) if "_flambeau_original" in vars(own) else own

    def __set__(self, twin: torch.nn.Module, cls: Any) -> None:
        if isinstance(cls, type) and not hasattr(cls, "_flambeau_original"):
            self._original.__class__ = cls
            cls = self._twin_class(cls)
        _CLASS.__set__(twin, cls)


def _attribute_of(base: type[torch.nn.Module], original: torch.nn.Module) -> Callable[..., Any]:
    """`__getattr__` of a twin: its original may have another class by now, which has what is looked for."""

    def get(self: torch.nn.Module, name: str) -> Any:
        cls = type(original)
        if cls is not base and "_flambeau_original" in vars(type(self)) and base in cls.__mro__:
            self.__class__ = cls
            return getattr(self, name)
        return base.__getattr__(self, name)

    return get


def _method(function: types.FunctionType, region: Callable[..., Any]) -> Callable[..., Any]:
    """A method like `function` that goes through `region`, which has its object already."""

    @functools.wraps(function)
    def method(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        return region(*args, **kwargs)

    return method


_ASKED_OF_THE_ORIGINAL = ("recompile", "_get_fsdp_state")
"""Methods that write to the object's class, or look the object up in a table: the original's class and entry are those that count."""


def _delegate(original: torch.nn.Module, name: str) -> Callable[..., Any]:
    def method(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        return getattr(original, name)(*args, **kwargs)

    return method


def original_of(model: Any) -> Any:
    """What a compiled module or function was made from; anything else is returned as it is."""
    made_from = getattr(model, "__flambeau_made_from__", None) if isinstance(model, Region) else None
    if made_from is not None:
        return made_from[0]
    found = getattr(type(model), "_flambeau_original", model)
    return found if isinstance(found, torch.nn.Module) else model
