"""Functions of Python's own namespace, and classes of its library, that a program has replaced: no frame is compiled meanwhile.

In: what `builtins` and these modules had when this was imported. Out: `are_as_imported()`, asked before anything of the compiler runs; `PutBack`, a context
that says what is replaced, and in which all of it is as it was.

Every stage, and what the stages use, calls these by their names, so that it would run the program's function: its effects would happen too often, and
its results steer the compiler. What the program reads there is guarded. For functions of the library and of torch there is more, see `patches.py`.
"""

from __future__ import annotations

import builtins
import collections
import contextlib
import dataclasses
import enum
import functools
import inspect
import itertools
import operator
import types
import typing
import weakref
from types import ModuleType
from typing import Any

from .guards.build import build
from .guards.spec import ModuleBindings

_NOT_CALLED = frozenset(
    ("_", "breakpoint", "copyright", "credits", "exit", "help", "input", "license", "open", "print", "quit")
)
"""What no stage calls by name while it compiles (files are opened by `os.fdopen`)."""
_MODULES = (
    collections, collections.abc, contextlib, dataclasses, enum, functools, inspect, itertools, operator, types, typing, weakref,
)  # fmt: skip
_KNOWN: tuple[tuple[ModuleType, dict[str, Any]], ...] = (
    (builtins, {name: value for name, value in vars(builtins).items() if callable(value) and name not in _NOT_CALLED}),
    *(
        (module, {name: value for name, value in vars(module).items() if isinstance(value, type)})
        for module in _MODULES
    ),
)
_AS_THEY_WERE = build(tuple(ModuleBindings(vars(module), tuple(names.items())) for module, names in _KNOWN))[0]
_ABSENT = object()


def are_as_imported() -> bool:
    """Whether all are there, which is asked without calling any of them; in no time while the namespaces are not written to."""
    return _AS_THEY_WERE.check({}, {}, {}) == -1


class PutBack:
    """A context in which all are as they were, in all threads; the names of those that were not are given."""

    def __enter__(self) -> tuple[str, ...]:
        found = []
        for module, names in _KNOWN:
            namespace = module.__dict__
            for name, value in names.items():
                present = namespace.get(name, _ABSENT)
                if present is not value:
                    found.append((namespace, name, present))
                    namespace[name] = value
        self.found = found
        return (*(f"{namespace['__name__']}.{name}" for namespace, name, _ in found),)

    def __exit__(self, *error: object) -> None:
        for namespace, name, present in self.found:
            if present is _ABSENT:
                del namespace[name]
            else:
                namespace[name] = present
