"""Functions that a program put in the place of torch's: the compiler's own stages do not call them.

In: what torch and modules of Python's library had under their names when this was imported. Out: `is_as_imported`, whether it is still there;
`unpatched()`, a context in which this thread finds all of it there. Formulas of torch that run on fakes, symbolic numbers, and the stages behind
capture call functions by their names, and where a program put its own under such a name, its effects would be seen too often, and its results be
taken for torch's.

Capture itself asks for what the program has there, and uses functions of the library by what it imported (`library.py`).

Other threads, if there are any, go on to find the program's function there, behind a stand-in that asks which thread calls it.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import hashlib
import inspect
import itertools
import logging
import math
import operator
import os
import re
import time
import traceback
from contextlib import AbstractContextManager, nullcontext
from threading import Lock, active_count, get_ident
from types import ModuleType
from typing import Any

import torch
import torch._lowrank
import torch._tensor
import torch.fft
import torch.functional
import torch.linalg
import torch.nn.functional
import torch.special
from attrs import frozen

from .guards.build import build
from .guards.spec import ClassMember, ClassMembers, ModuleBindings
from .sources.source import Pinned

_MODULES: tuple[ModuleType, ...] = (
    torch, torch.functional, torch._tensor, torch._lowrank, torch._C._nn, torch.nn.functional, torch.linalg, torch.special, torch.fft, math,
    operator,
)  # fmt: skip
_CLASSES: tuple[type, ...] = (torch.Tensor, torch.nn.Module)
_LIBRARY: tuple[ModuleType | type, ...] = (
    contextlib, copy, dataclasses, functools, hashlib, inspect, itertools, logging, logging.Logger, os, re, time, traceback,
)  # fmt: skip
"""What torch uses for itself while it compiles; no function of a graph does by these what it does."""
_OF_TORCH = ("manual_seed",)
"""What torch itself wraps, as soon as its own compiler is imported."""


def _names(owner: Any) -> dict[str, Any]:
    """What a module has under its names; what a class and its bases have, but for what every class has."""
    if not isinstance(owner, type):
        return dict(vars(owner))
    return {name: value for base in reversed(owner.__mro__[:-1]) for name, value in vars(base).items()}


def _is_code(value: Any) -> bool:
    """Whether this is a function or a descriptor: settings, submodules and classes are not stood in for."""
    return not isinstance(value, type | ModuleType) and (callable(value) or hasattr(type(value), "__get__"))


_KNOWN: dict[Any, dict[str, Any]] = {owner: _names(owner) for owner in (*_MODULES, *_CLASSES)}
_KNOWN_LIBRARY: dict[Any, dict[str, Any]] = {owner: _names(owner) for owner in _LIBRARY}
_BASES: dict[type, dict[str, type]] = {
    cls: {name: base for base in reversed(cls.__mro__[:-1]) for name in vars(base)}
    for cls in (*_CLASSES, *_LIBRARY)
    if isinstance(cls, type)
}
"""Which class of each one's resolution order has a name."""


@frozen(eq=False)
class Patch:
    """A function that is not what it was: its module or class, its name, what it was, what the program put there."""

    owner: Any
    name: str
    original: Any
    present: Any


def is_as_imported(owner: Any, name: str, found: Any) -> bool:
    """Whether what a class of torch has under a name is what it had when this was imported; True of classes that were not looked at."""
    return owner not in _CLASSES or _KNOWN[owner].get(name, found) is found


@functools.cache
def known_code() -> dict[Any, dict[str, Any]]:
    """The functions and descriptors that each module and class of torch's had when this was imported, by name; `math` and `operator` are among them."""
    return {owner: _code_of(names) for owner, names in _KNOWN.items()}


@functools.cache
def _watched() -> dict[Any, dict[str, Any]]:
    """The same of all that may be replaced."""
    return known_code() | {owner: _code_of(names) for owner, names in _KNOWN_LIBRARY.items()}


def _code_of(names: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in names.items() if _is_code(value) and name not in _OF_TORCH}


def base_of(cls: type, name: str) -> type:
    """Which class in the resolution order of one of torch's had the name."""
    return _BASES[cls][name]


def patches() -> tuple[Patch, ...]:
    """The functions that a program has put its own in the place of. While no namespace is written to, that is asked in no time."""
    if _as_they_were().check({}, {}, {}) == -1:
        return ()
    found = []
    for owner, code in _watched().items():
        now = _names(owner)
        for name, value in code.items():
            present = now.get(name, value)
            if present is not value:
                present = present.patch.present if isinstance(present, _StandIn) else present
                found.append(Patch(owner, name, value, present))
    return tuple(found)


@functools.cache
def _as_they_were() -> Any:
    """Guards that hold while nothing is replaced."""
    code = _watched()
    bindings = (
        ModuleBindings(vars(module), tuple(names.items())) for module, names in code.items() if module not in _BASES
    )
    members = (
        ClassMembers(
            Pinned(cls), tuple(ClassMember(name, None, base_of(cls, name), value) for name, value in code[cls].items())
        )
        for cls in _BASES
    )
    return build((*bindings, *members))[0]


class _StandIn:
    """Under the name of a replaced function while a thread compiles: to that thread it is the original, to others what the program put there."""

    def __init__(self, patch: Patch) -> None:
        self.patch = patch

    def _function(self) -> Any:
        return self.patch.original if get_ident() in _compiling else self.patch.present

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function()(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._function(), name)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        function = self._function()
        get = getattr(type(function), "__get__", None)
        return function if get is None else get(function, instance, owner)


class _StandInForData(_StandIn):
    """The same of what is set as well."""

    def __set__(self, instance: Any, value: Any) -> None:
        function = self._function()
        type(function).__set__(function, instance, value)

    def __delete__(self, instance: Any) -> None:
        function = self._function()
        type(function).__delete__(function, instance)


def _stand_in(patch: Patch) -> Any:
    """What stands under the name meanwhile: the original itself where no other thread is there to see it, for stages compare functions by identity."""
    if active_count() == 1:
        return patch.original
    return (_StandInForData if hasattr(type(patch.original), "__set__") else _StandIn)(patch)


_lock = Lock()
_compiling: dict[int, int] = {}
"""Of each thread that is in the context how often it has entered it."""
_standing: list[tuple[Patch, Any]] = []


def is_stood_in_for(function: Any) -> bool:
    """Whether this is one of torch's functions that has its name only within the context."""
    return any(patch.original is function for patch, _ in _standing)


class _Unpatched:
    """The context while something is replaced; a thread may enter it again, and several threads at once."""

    def __init__(self, found: tuple[Patch, ...]) -> None:
        self.found = found

    def __enter__(self) -> None:
        thread = get_ident()
        with _lock:
            _compiling[thread] = _compiling.get(thread, 0) + 1
            for one in self.found:
                if vars(one.owner).get(one.name) is one.present:
                    _standing.append((one, _stand_in(one)))
                    setattr(one.owner, one.name, _standing[-1][1])

    def __exit__(self, *error: object) -> None:
        thread = get_ident()
        with _lock:
            _compiling[thread] -= 1
            if not _compiling[thread]:
                del _compiling[thread]
            if _compiling:
                return
            for one, stand_in in _standing:
                if vars(one.owner).get(one.name) is stand_in:
                    setattr(one.owner, one.name, one.present)
            _standing.clear()


def unpatched(found: tuple[Patch, ...] | None = None) -> AbstractContextManager[None]:
    """A context in which this thread finds torch's functions under their names, whatever there is of `patches()` now. It can be entered again."""
    found = patches() if found is None else found
    return _Unpatched(found) if found else nullcontext()
