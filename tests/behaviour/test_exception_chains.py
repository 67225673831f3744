"""What an exception tells: what it came after, its cause, where it was raised, and which one was being handled meanwhile.

Each shape of `try`, `except`, `except*`, `finally`, `with` and generators is the body of a function that is called in several ways: alone, after
a break, from a caller that catches it, or that handles another exception.
"""

from __future__ import annotations

import sys
import textwrap
import traceback
from collections.abc import Callable
from typing import Any

import pytest
import torch

import flambeau

from .counted_graphs import CountedGraphs

FILE = "<shape>"
DECLARATIONS = """
import contextlib, dataclasses, sys, torch
class A(Exception): pass
class B(Exception): pass
class C(Exception): pass
class D(Exception): pass
LOG = []
def note():
    LOG.append(str(sys.exc_info()[0]))
def fail(n):
    raise A(n)
def fail2(n):
    try:
        fail(n)
    except A as e:
        raise B(n) from e
class M:
    def __init__(self, raising=False, swallow=False):
        self.raising, self.swallow = raising, swallow
    def __enter__(self): return self
    def __exit__(self, k, e, tb):
        note()
        if self.raising:
            raise D('exit')
        return self.swallow
@contextlib.contextmanager
def cm(kind):
    try:
        yield
    except A as e:
        note()
        if kind == 1:
            raise D('cm')
        if kind == 2:
            raise D('cm') from e
        raise
def gen():
    try:
        yield 1
    except A:
        note()
        raise B('g')
def gen2():
    yield 1
    note()
    raise B('g2')
def gen3():
    try:
        raise A('g3')
    except A:
        yield 1
        note()
        raise B('g3')
def gen4():
    yield 1
    raise StopIteration(3)
"""
SHAPES = {
    "plain": "try:\n    raise A(1)\nexcept B:\n    pass\n",
    "star nomatch": "try:\n    raise A(1)\nexcept* B:\n    pass\n",
    "star nomatch group": "try:\n    raise ExceptionGroup('g',[A(1)])\nexcept* B:\n    pass\n",
    "star part": "try:\n    raise ExceptionGroup('g',[A(1),B(2)])\nexcept* B:\n    pass\n",
    "star part raise": "try:\n    raise ExceptionGroup('g',[A(1),B(2)])\nexcept* B:\n    raise C(3)\n",
    "star raise": "try:\n    raise A(1)\nexcept* A:\n    raise C(3)\n",
    "star raise from": "try:\n    raise A(1)\nexcept* A as e:\n    raise C(3) from e\n",
    "star reraise": "try:\n    raise A(1)\nexcept* A:\n    raise\n",
    "star two": "try:\n    raise ExceptionGroup('g',[A(1),B(2)])\nexcept* A:\n    raise C(3)\nexcept* B:\n    raise D(4)\n",
    "star then": "try:\n    try:\n        raise A(1)\n    except* B:\n        pass\nexcept BaseException as e:\n    raise C(2)\n",
    "star finally": "try:\n    raise A(1)\nexcept* B:\n    pass\nfinally:\n    note()\n",
    "star finally raise": "try:\n    raise A(1)\nexcept* B:\n    pass\nfinally:\n    raise C(2)\n",
    "nested": "try:\n    raise A(1)\nexcept A:\n    try:\n        raise B(2)\n    except B:\n        note()\n        raise C(3)\n",
    "in handler star": "try:\n    raise A(1)\nexcept A:\n    try:\n        raise B(2)\n    except* C:\n        pass\n",
    "in handler after star": "try:\n    raise A(1)\nexcept A:\n    try:\n        raise B(2)\n    except* B:\n        note()\n    note()\n    raise C(3)\n",
    "from none": "try:\n    raise A(1)\nexcept A:\n    raise C(3) from None\n",
    "from e": "try:\n    raise A(1)\nexcept A as e:\n    raise C(3) from e\n",
    "finally raise": "try:\n    raise A(1)\nfinally:\n    raise C(3)\n",
    "finally note": "try:\n    raise A(1)\nfinally:\n    note()\n",
    "reraise e": "try:\n    raise A(1)\nexcept A as e:\n    raise e\n",
    "reraise other": "try:\n    raise A(1)\nexcept A as e:\n    try:\n        raise B(2)\n    except B:\n        raise e\n",
    "with raise": "with M(raising=True):\n    raise A(1)\n",
    "with pass": "with M():\n    raise A(1)\n",
    "with swallow": "with M(swallow=True):\n    raise A(1)\nnote()\nraise C(2)\n",
    "cm raise": "with cm(1):\n    raise A(1)\n",
    "cm from": "with cm(2):\n    raise A(1)\n",
    "cm pass": "with cm(0):\n    raise A(1)\n",
    "gen throw": "g = gen()\nnext(g)\ng.throw(A(1))\n",
    "gen in handler": "g = gen2()\nnext(g)\ntry:\n    raise A(1)\nexcept A:\n    next(g)\n",
    "gen handler yield": "g = gen3()\nnext(g)\nnote()\nraise C(2)\n",
    "gen handler yield2": "g = gen3()\ntry:\n    raise C(2)\nexcept C:\n    next(g)\n    note()\nnext(g)\n",
    "loop": "for k in range(2):\n    try:\n        raise A(k)\n    except A:\n        if k:\n            raise C(k)\n",
    "func": "try:\n    fail(1)\nexcept A:\n    fail2(2)\n",
    "else raise": "try:\n    pass\nexcept A:\n    pass\nelse:\n    raise C(1)\n",
    "key": "try:\n    {}['k']\nexcept KeyError:\n    [][1]\n",
    "attr": "try:\n    None.zz\nexcept AttributeError:\n    1 // 0\n",
    "del e": "e = 5\ntry:\n    raise A(1)\nexcept A as e:\n    pass\ne\n",
    "return finally": "def q():\n    try:\n        raise A(1)\n    finally:\n        return 3\nnote()\nraise C(q())\n",
    "of a library's own": "try:\n    {}['k']\nexcept KeyError:\n    dataclasses.fields(5)\n",
    "stopiter": "next(iter([]))\n",
    "gen stop": "list(gen4())\n",
    "nested star": "try:\n    try:\n        raise ExceptionGroup('g',[A(1),B(2)])\n    except* A:\n        note()\nexcept* B:\n    raise C(5)\n",
    "same again": "a = A(1)\ntry:\n    raise a\nexcept A:\n    try:\n        raise B(2)\n    except B as b:\n        raise a from b\n",
    "assert": "try:\n    assert False, 'm'\nexcept AssertionError:\n    assert 0\n",
    "with in handler": "try:\n    raise A(1)\nexcept A:\n    with M(raising=True):\n        pass\n",
    "with in handler2": "try:\n    raise A(1)\nexcept A:\n    with M():\n        raise B(1)\n",
    "cleanup next": "try:\n    raise A(1)\nexcept A:\n    pass\nnote()\nraise C(9)\n",
    "star after": "try:\n    raise A(1)\nexcept* A:\n    pass\nnote()\nraise C(9)\n",
}  # fmt: skip
WAYS = {
    "alone": "def f(x):\n    x = x + 1\n{body}    return x\n",
    "after a break": "def f(x):\n    x = x + 1\n    breaks()\n{body}    return x\n",
    "called": "def h(x):\n    x = x * 2\n{body}    return x\ndef f(x):\n    x = x + 1\n    x = h(x)\n    return x\n",
    "caught": "def h(x):\n    x = x * 2\n{body}    return x\ndef f(x):\n    x = x + 1\n    try:\n        x = h(x)\n    except Exception as e:\n        return x, e, told(e)\n    return x, 1\n",
    "in a handler": "def h(x):\n    x = x * 2\n{body}    return x\ndef f(x):\n    x = x + 1\n    try:\n        fail('w')\n    except A:\n        x = h(x)\n    return x, 1\n",
    "with breaks": "def h(x):\n    breaks()\n    x = x * 2\n{body}    return x\ndef f(x):\n    x = x + 1\n    try:\n        x = h(x)\n    except Exception as e:\n        breaks()\n        x = x + 1\n        raise KeyError('last')\n    return x, 1\n",
}  # fmt: skip
QUICK = ("alone", "in a handler")


def _told(error: BaseException | None, lines: bool, seen: tuple[int, ...] = ()) -> Any:
    """An exception with those that it came after and of, and the line of the function where it passed if `lines`."""
    if error is None or id(error) in seen or len(seen) > 6:
        return None if error is None else "..."
    seen = (*seen, id(error))
    places = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.name.split(".")[0] == "f" and frame.filename == FILE
    ]
    parts = getattr(error, "exceptions", ())
    return (
        type(error).__name__, str(error), error.__suppress_context__, places[-1:] if lines else None,
        _told(error.__cause__, False, seen), _told(error.__context__, False, seen), [_told(part, False, seen) for part in parts],
    )  # fmt: skip


def _run(source: str, compiler: Callable[..., Any], breaks: Callable[[], None], lines: bool) -> list[Any]:
    space: dict[str, Any] = {"breaks": breaks, "told": lambda error: _told(error, lines), "__name__": "shapes"}
    exec(compile(DECLARATIONS + source, FILE, "exec"), space)
    function = compiler(space["f"])
    found = []
    for _ in range(2):
        try:
            outcome: Any = str(function(torch.ones(2)))
        except Exception as error:
            outcome = _told(error, lines)
        found.append((outcome, sys.exc_info()[0], list(space["LOG"])))
        space["LOG"].clear()
    return found


@pytest.mark.judges_itself
@pytest.mark.parametrize("way", [way if way in QUICK else pytest.param(way, marks=pytest.mark.slow) for way in WAYS])
def test_an_exception_tells_what_it_tells_in_python(way: str) -> None:
    graphs = CountedGraphs()
    for shape in SHAPES.values():
        source = WAYS[way].format(body=textwrap.indent(shape, "    "))
        lines = way == "alone"  # elsewhere the frames of inlined functions are missing
        flambeau.compiler.reset()
        plain = _run(source, lambda function: function, lambda: None, lines)
        found = _run(source, graphs, flambeau.compiler.graph_break, lines)
        assert found == plain, f"{source}\n{plain}\n{found}"
    assert graphs.number >= 20


CAUGHT = """
def f(x):
    try:
        {}['k']
    except KeyError as error:
        return x + 1, error
def looks(x):
    found = f(x)[1]
    return x * 2, type(found.__context__).__name__
def again(x):
    error = None
    try:
        raise ValueError
    except ValueError:
        try:
            raise KeyError
        except KeyError as e:
            error = e
    try:
        raise error
    except KeyError as e:
        return x + 1, type(e.__context__).__name__
def bare(x):
    try:
        raise
    except Exception as error:
        return x + 1, type(error).__name__
"""


@pytest.mark.judges_itself
@pytest.mark.parametrize("name", ["f", "looks", "again", "bare"])
def test_what_is_caught_comes_after_what_a_caller_handles(name: str) -> None:
    found = []
    graphs = CountedGraphs()
    for compiled in (False, True):
        space: dict[str, Any] = {}
        exec(CAUGHT, space)
        function = graphs(space[name]) if compiled else space[name]
        found.append([])
        for handles in (False, True, False):
            try:
                if handles:
                    raise LookupError("the caller's")
                result = function(torch.ones(2))[1]
            except LookupError:
                result = function(torch.ones(2))[1]
            found[-1].append(result if isinstance(result, str) else repr(result.__context__))
    assert found[0] == found[1]
    assert len(set(found[0])) == 2
    assert graphs.number >= 1
