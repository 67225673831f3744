"""Functions of Python's library that a program has replaced: capture calls none of them for itself, nor takes one for the function of that name."""

from __future__ import annotations

import ast
import collections
import copy
import dataclasses
import functools
import hashlib
import inspect
import math
import operator
import time
from pathlib import Path

import pytest
import torch
from both_ways import assert_equal, eager, outcome

import flambeau_capture
from flambeau_capture import library, make_region

_SOURCES = Path(flambeau_capture.__file__).parent
_THEMSELVES = ("library.py", "patches.py", "replaced_names.py", "graph/shape_env.py")
"""Modules that need those of the library as they are."""


@dataclasses.dataclass
class _Record:
    number: int


def test_modules_of_the_library_are_taken_as_imported():
    """Where a module of capture uses one at all, by an import at its top."""
    kept = {name for name in vars(library) if not name.startswith("_")} - {"types"}
    for path in _SOURCES.rglob("*.py"):
        if path.relative_to(_SOURCES).as_posix() in _THEMSELVES:
            continue
        imports = (node for node in ast.parse(path.read_text()).body if isinstance(node, ast.Import))
        taken = kept & {alias.name for node in imports for alias in node.names}
        assert not taken, f"{path.name} imports {taken}: `from .library import` what was there at first"


PLACES = [
    (operator, "attrgetter", lambda x, n: operator.attrgetter("shape")(x)),
    (operator, "attrgetter", lambda x, n: operator.attrgetter(1)),
    (operator, "methodcaller", lambda x, n: operator.methodcaller("mul", n)(x)),
    (operator, "index", lambda x, n: operator.index(n)),
    (functools, "reduce", lambda x, n: functools.reduce(max, []) + x),
    (dataclasses, "fields", lambda x, n: [field.name for field in dataclasses.fields(_Record)] + [x]),
    (dataclasses, "is_dataclass", lambda x, n: (dataclasses.is_dataclass(_Record), x)),
    (collections, "namedtuple", lambda x, n: collections.namedtuple("Pair", "a a")),
    (copy, "deepcopy", lambda x, n: copy.deepcopy([x.shape, n])),
    (inspect, "signature", lambda x, n: (str(inspect.signature(assert_equal)), x)),
    (math, "sqrt", lambda x, n: x * math.sqrt(n)),
    (hashlib, "sha256", lambda x, n: x * n),
    (time, "perf_counter", lambda x, n: x * n),
]


@pytest.mark.parametrize(("owner", "name", "function"), PLACES)
def test_a_replaced_function_is_called_where_the_program_calls_it(owner, name, function, monkeypatch):
    """Three calls, the last of which have a symbolic number."""
    x = torch.ones(3)
    first = make_region(function, backend=eager)
    for number in (2, 3):
        outcome(first, x, number)  # what torch imports meanwhile calls such functions too
    kept, calls = getattr(owner, name), []

    def told(*args, **kwargs):
        calls.append(name)
        return kept(*args, **kwargs)

    monkeypatch.setattr(owner, name, told)
    compiled = make_region(function, backend=eager)
    for number in (2, 3, 4):
        calls.clear()
        expected, wanted = outcome(function, x, number), len(calls)
        calls.clear()
        assert_equal(outcome(compiled, x, number), expected)
        assert len(calls) == wanted
