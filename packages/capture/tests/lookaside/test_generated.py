"""Everything of Python that has a replacement is called over its whole signature, and does what Python does.

A function that gets a replacement is called here at once: a name that can be neither called nor excused fails.
"""

from __future__ import annotations

import inspect

import pytest

from flambeau_capture import replacements as registry

from . import generated

BREAKS = frozenset((
    "builtins.classmethod", "builtins.dir", "builtins.globals", "builtins.locals", "builtins.property", "builtins.staticmethod",
    "collections.namedtuple",
))  # fmt: skip
"""Replaced by a graph break: no call is one graph."""
ELSEWHERE = {
    "builtins.id": "addresses do not compare",
    "builtins.input": "reads",
    "collections._count_elements": "called by Counter alone, with itself: tests/values/test_counters.py",
    "builtins.method": "has no name in Python: tests/lookaside/test_stdlib.py",
    "sys.exc_info": "of a handler: tests/lookaside/test_exceptions.py",
    "sys.exception": "of a handler: tests/lookaside/test_exceptions.py",
    "builtins.mappingproxy": "of another name in Python: tests/interp/rules/namespaces.py",
    "builtins.print": "writes",
}
"""What cannot be compared here, and why."""
UNCOMPARED_MODULES = ("random", "logging", "warnings", "inspect", "dataclasses", "numpy", "flambeau_capture")
"""Those whose functions act on state outside of the call (`test_stdlib.py` and `tests/interp/changes` have them), NumPy's (`tests/lookaside/arrays`), and our
own."""
SIGNATURES = {
    "builtins.object.__new__": inspect.signature(lambda cls, /, *args: 0),
    "builtins.tuple.__new__": inspect.signature(lambda cls, iterable=0, /: 0),
    "builtins.dict.__new__": inspect.signature(lambda cls, /, *args: 0),
    "builtins.list.__new__": inspect.signature(lambda cls, /, *args: 0),
    "builtins.hash": inspect.signature(lambda number, /: 0),
    "copy.deepcopy": inspect.signature(lambda x, memo=None: 0),
}
"""Calls that can be compared, where the function's own signature does not tell them."""
RARELY_ONE_GRAPH = frozenset((
    "builtins.next", "builtins.super", "builtins.object.__new__", "builtins.tuple.__new__", "builtins.dict.__new__", "builtins.list.__new__",
    "itertools.groupby", "functools.update_wrapper", "operator.concat", "operator.iconcat", "builtins.type", "operator.delitem",
))  # fmt: skip
"""What random arguments seldom fit."""


def _name(target):
    owner = getattr(target, "__objclass__", None) or getattr(target, "__self__", None)
    module = getattr(target, "__module__", None) or (owner or type(target)).__module__
    return f"{module.removeprefix('_')}.{getattr(target, '__qualname__', target)}"


NAMES = sorted({_name(target) for target in registry.replaced() if not registry.is_torchs(target)} - ELSEWHERE.keys())
NAMES = [name for name in NAMES if not name.startswith(UNCOMPARED_MODULES)]


HASHED_BY_ADDRESS = frozenset((*generated.OBJECTS, "iter([1, 2, 3])", "(lambda v: v)", "functools.partial(add, 1)"))


def _differences(name, count, seed):
    cases = generated.cases(name, count, seed, SIGNATURES.get(name))
    if name == "builtins.hash":
        cases = (case for case in cases if HASHED_BY_ADDRESS.isdisjoint(text for _, text in case.arguments))
    answers = [generated.compare(case) for case in cases]
    return [found for found, _ in answers if found], sum(one for _, one in answers)


@pytest.mark.parametrize("name", NAMES)
def test_a_replacement_does_what_python_does(name):
    differences, modelled = _differences(name, 8, 0)
    assert not differences, differences[0]
    if name in BREAKS:
        assert not modelled
    elif name not in RARELY_ONE_GRAPH:
        more = generated.cases(name, 60, "more", SIGNATURES.get(name))
        assert modelled or any(generated.compare(case)[1] for case in more), (
            "no call was one graph: the replacement is dead, or no argument fits it"
        )


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 4))
@pytest.mark.parametrize("name", NAMES)
def test_many_calls(name, seed):
    differences, _ = _differences(name, 40, seed)
    assert not differences, differences[0]


def test_excuses_are_needed():
    """Every name above is one of something that is replaced."""
    known = {_name(target) for target in registry.replaced() if not registry.is_torchs(target)}
    assert BREAKS | ELSEWHERE.keys() | SIGNATURES.keys() | RARELY_ONE_GRAPH <= known
    assert all(any(name.startswith(f"{module}.") for name in known) for module in UNCOMPARED_MODULES)
    uncompared = {name for name in known if name.startswith(UNCOMPARED_MODULES)}
    assert known == {*NAMES, *uncompared, *ELSEWHERE}


METHODS = [(cls, name) for cls in generated.OWNERS for name in generated.methods_of(cls)]


@pytest.mark.parametrize("cls", generated.OWNERS, ids=lambda cls: cls.__name__)
def test_methods_do_what_python_does(cls):
    modelled = 0
    for name in generated.methods_of(cls):
        for case in generated.method_cases(cls, name, 3, 0):
            difference, one = generated.compare(case)
            assert not difference, difference
            modelled += one
    assert modelled, "no call was one graph"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 4))
@pytest.mark.parametrize(("cls", "name"), METHODS, ids=[f"{cls.__name__}.{name}" for cls, name in METHODS])
def test_many_calls_of_methods(cls, name, seed):
    for case in generated.method_cases(cls, name, 25, seed):
        difference, _ = generated.compare(case)
        assert not difference, difference
