"""Modules of Python's library with what they had under their names when this was imported.

In: nothing. Out: copies of these modules. A program may put functions of its own there (`mock.patch("time.perf_counter")`), which are there to be called
by the program: capture calls none of them for itself, nor takes one for what the function of that name does. What the program has there is read from
the modules themselves, by their values (`interp/attributes.py`). For code of others that runs while compiling, see `patches.py`.

Modules whose variables change (`warnings.filters`, `sys.stdout`) are not among them.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import collections as collections
    import contextlib as contextlib
    import copy as copy
    import dataclasses as dataclasses
    import dis as dis
    import functools as functools
    import gc as gc
    import inspect as inspect
    import itertools as itertools
    import linecache as linecache
    import math as math
    import operator as operator
    import threading as threading
    import time as time
    import weakref as weakref
else:
    from importlib import import_module

    def _as_imported(name: str) -> types.ModuleType:
        module = import_module(name)
        kept = types.ModuleType(name, module.__doc__)
        vars(kept).update(vars(module))
        return kept

    collections, contextlib, copy, dataclasses, dis, functools, gc, inspect, itertools, linecache, math, operator, threading, time, weakref = map(
        _as_imported,
        (
            "collections", "contextlib", "copy", "dataclasses", "dis", "functools", "gc", "inspect", "itertools", "linecache", "math", "operator",
            "threading", "time", "weakref",
        ),
    )  # fmt: skip
