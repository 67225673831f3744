"""Guards as the region checks them: shapes, globals of other modules, guards that run Python."""

from __future__ import annotations

import torch

from flambeau_capture.frame import FrameInfo, RunCode, RunGraph, SkipAlways
from flambeau_capture.guards.spec import ConstantIs, PythonCheck, TensorMatch
from flambeau_capture.hook import make_region
from flambeau_capture.native import _C
from flambeau_capture.sources.source import Attribute, Global, Local

FLAG = 0


def test_tensor_guards_pick_the_entry_per_shape():
    def f(x):
        return x

    def callback(frame):
        x = frame.locals["x"]
        name = tuple(x.shape)
        return RunGraph(lambda x: (name,), (Local("x"),), 0, (TensorMatch.of(Local("x"), x),))

    region = make_region(f, callback)
    for shape in [(2,), (3,), (2,), (2, 2), (3,)]:
        assert region(torch.ones(shape)) == shape


def test_globals_of_another_module_are_guarded_through_the_function():
    def f():
        return FLAG

    def callback(frame):
        value = frame.globals["FLAG"]
        return RunGraph(lambda: (value,), (), 0, (ConstantIs(Global("FLAG"), value),))

    region = make_region(f, callback)
    global FLAG
    results = []
    for value in (1, True, 1, 2.0):
        FLAG = value
        results.append(region())
    FLAG = 0
    assert [(type(r), r) for r in results] == [(int, 1), (bool, True), (int, 1), (float, 2.0)]


class Watched:
    """Every attribute goes through Python, as guards and the compiled code meet it."""

    def __init__(self):
        self.scale = 3

    def __getattribute__(self, name):
        return object.__getattribute__(self, name)

    @property
    def doubled(self):
        return self.scale * 2


def test_a_guard_that_enters_python_is_checked_with_the_hook_off():
    """The guard's own frames must not be captured: looking at them would check the guard again without end."""

    def f(x, y):
        return x + y.scale

    def g(x, y):
        return x + 100

    looked = []

    def predicate(value):
        looked.append(_C.active_region())
        return value.doubled == 6

    guards = (PythonCheck(Local("y"), predicate, "doubled is 6"), ConstantIs(Attribute(Local("y"), "scale"), 3))
    seen = []

    def callback(frame: FrameInfo):
        seen.append(frame.code.co_name)
        return RunCode(g.__code__, guards) if frame.code is f.__code__ else SkipAlways()

    def outer(x, y):
        return f(x, y)

    region = make_region(outer, callback)
    y = Watched()
    assert [region(1, y) for _ in range(3)] == [101] * 3
    assert seen == ["outer", "f"]
    assert set(looked) == {None}


def test_a_guard_that_calls_a_region_calls_it_plainly():
    """A region reached from a guard is an ordinary call."""

    def f(x):
        return x

    inner = make_region(f, lambda frame: RunCode((lambda x: x + 1).__code__, ()))
    region = make_region(
        f, lambda frame: RunCode(f.__code__, (PythonCheck(Local("x"), lambda v: inner(v) == v, "same"),))
    )
    assert [region(5), region(5)] == [5, 5]
