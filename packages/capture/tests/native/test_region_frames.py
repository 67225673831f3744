"""What the frame hook leaves alone and what it takes: exceptions, recursion, generators, methods, nested regions, disabled callables."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch

from flambeau_capture.frame import RunGraph, Skip, SkipAlways
from flambeau_capture.guards.spec import TypeIs
from flambeau_capture.hook import call_disabled, make_region
from flambeau_capture.native import _C
from flambeau_capture.sources.source import InstanceDict, Item, Local

from .regions import replace


def test_exceptions_cross_rewritten_frames_with_their_tracebacks():
    def f(x):
        return x

    def g(x):
        raise ValueError(x)

    def call(x):
        try:
            return f(x)
        except ValueError as error:
            return error.args, error.__traceback__.tb_next.tb_frame.f_code.co_name

    region = make_region(call, replace({"f": g}))
    assert region(3) == ((3,), "g")
    direct = make_region(f, replace({"f": g}))
    for _ in range(3):
        with pytest.raises(ValueError, match="5"):
            direct(5)


def test_deep_recursion_through_the_hook():
    def down(n):
        return 0 if n == 0 else 1 + down(n - 1)

    def down_compiled(n):
        return 0 if n == 0 else 1 + down(n - 1)

    free = down_compiled.__code__.co_freevars == down.__code__.co_freevars
    assert free
    region = make_region(down, replace({"down": down_compiled}))
    assert region(300) == 300

    def forever(n):
        return forever(n + 1)

    endless = make_region(forever, replace({"forever": forever}))
    with pytest.raises(RecursionError):
        endless(0)
    assert not _C.hook_installed()
    assert region(10) == 10


def test_what_the_collector_calls_is_no_call_of_the_region():
    """Callbacks and finalizers run as they are; a region that one of them calls is a region like any other."""

    class Looped:
        def __init__(self):
            self.me = self

        def __del__(self):
            ran.append(own(1))

    def own(x):
        return helper(x)

    def helper(x):
        return x

    def replaced(x):
        return -x

    def on_collection(phase, info):
        ran.append(helper(2))

    def call():
        Looped()
        kept = Looped()
        reference = weakref.ref(kept, on_death)
        kept.reference = reference
        del kept
        gc.callbacks.append(on_collection)
        try:
            gc.collect()
        finally:
            gc.callbacks.remove(on_collection)
        return helper(3), reference

    def on_death(reference):
        ran.append(helper(4))

    ran, seen = [], []
    region = make_region(call, replace({"helper": replaced}, seen=seen))
    inner = make_region(helper, replace({"helper": replaced}))
    gc.collect()
    assert region()[0] == -3
    assert ran == [2, 4, 1, 1, 2], ran
    assert {"own", "on_collection", "on_death"}.isdisjoint(seen), seen

    gc.callbacks.append(lambda phase, info: ran.append(inner(5)))
    try:
        gc.collect()
    finally:
        gc.callbacks.pop()
    assert ran[-2:] == [-5, -5]


def test_generators_run_as_they_are_and_their_callees_are_captured():
    def helper(x):
        return x

    def helper_compiled(x):
        return -x

    def numbers(n):
        for i in range(n):
            yield helper(i)

    async def wait(x):
        return helper(x)

    def total(n):
        coroutine = wait(n)
        try:
            coroutine.send(None)
        except StopIteration as stop:
            waited = stop.value
        return list(numbers(n)), waited

    seen = []
    region = make_region(total, replace({"helper": helper_compiled}, seen=seen))
    assert region(3) == ([0, -1, -2], -3)
    assert "numbers" not in seen
    assert "wait" not in seen


def test_module_level_code_and_class_bodies_run_as_they_are():
    def f():
        table = {}
        exec("class A:\n    y = 3\n    z = y + 1\nvalue = A.z", table)
        return table["value"]

    assert make_region(f, replace({}))() == 4


def test_regions_bind_as_methods_and_carry_attributes():
    class A:
        k = 2

        def f(self, x):
            return self.k + x

    def g(self, x):
        return self.k * x

    A.f = make_region(A.f, replace({"f": g}))
    instance = A()
    assert [instance.f(5), instance.f(6), A.f(instance, 7)] == [10, 12, 14]
    region = A.__dict__["f"]
    region.note = "kept"
    assert (region.note, region.__name__, weakref.ref(region)()) == ("kept", "f", region)
    assert region.__wrapped__(instance, 5) == 7


def test_modules_and_bound_methods_hit_without_the_hook():
    class Module(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(2))

        def forward(self, x):
            return x + self.weight

    module = Module()
    installed = []

    def compiled(x, weight):
        installed.append(_C.hook_installed())
        return (x * 2 + weight,)

    weight = Item(Item(InstanceDict(Local("self")), "_parameters"), "weight")

    def callback(frame):
        x = Item(Local("args"), 0) if "args" in frame.locals else Local("x")
        return RunGraph(compiled, (x, weight), 0, (TypeIs(Local("self"), Module),))

    for target in (module, module.forward):
        installed.clear()
        region = make_region(target, callback)
        x = torch.ones(2)
        assert torch.equal(region(x), x * 2 + 1)
        assert torch.equal(region(x), x * 2 + 1)
        assert installed[-1] is False


def test_disabled_callables_are_not_captured():
    def inner(x):
        return x

    def middle(x):
        return inner(x)

    def changed(x):
        return x + 100

    table = {"inner": changed}
    seen = []
    everything = call_disabled(middle)
    only_itself = call_disabled(middle, recursive=False)
    region = make_region(lambda x: (everything(x), only_itself(x), middle(x)), replace(table, seen=seen))
    assert region(1) == (1, 101, 101)
    assert seen.count("middle") == 1
    assert everything.__name__ == "middle"


def test_skip_always_is_remembered_and_forget_forgets():
    def inner(x):
        return x

    def f(x):
        return inner(x)

    asked = []

    def callback(frame):
        asked.append(frame.code.co_name)
        return SkipAlways(recursive=frame.code.co_name == "f")

    region = make_region(f, callback)
    assert [region(1), region(2)] == [1, 2]
    assert asked == ["f"]
    region.forget()
    region(3)
    assert asked == ["f", "f"]


def test_nested_regions_use_their_own_entries():
    def leaf(x):
        return x

    def ten(x):
        return x * 10

    def hundred(x):
        return x * 100

    inner = make_region(lambda x: leaf(x), replace({"leaf": ten}))
    outer = make_region(lambda x: (leaf(x), inner(x), leaf(x)), replace({"leaf": hundred}))
    assert outer(2) == (200, 20, 200)
    assert outer(3) == (300, 30, 300)


def test_the_compiler_itself_is_not_captured():
    def helper(x):
        return x

    def f(x):
        return x

    inner = make_region(helper, replace({"helper": lambda x: 1 / 0}))

    def callback(frame):
        assert helper(3) == 3
        assert inner(4) == 4
        assert _C.active_region() is None
        return Skip()

    assert make_region(f, callback)(7) == 7
