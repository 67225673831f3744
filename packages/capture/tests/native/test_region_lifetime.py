"""Threads, references, dead objects, collection, leaks."""

from __future__ import annotations

import gc
import resource
import sys
import threading
import weakref

import pytest

from flambeau_capture.cache import reset
from flambeau_capture.config import Config
from flambeau_capture.errors import InternalError
from flambeau_capture.frame import RunCode, RunGraph, Skip
from flambeau_capture.guards.spec import IdentityIs
from flambeau_capture.hook import make_region
from flambeau_capture.native import _C
from flambeau_capture.sources.source import Item, Local

from .regions import replace


def test_threads_share_entries_and_others_are_left_alone():
    def f(x):
        return ("eager", x)

    def g(x):
        return ("compiled", x)

    start = threading.Barrier(4)
    release = threading.Event()
    compiling = threading.Event()

    def callback(frame):
        if frame.code is not f.__code__:
            return Skip()  # a callback of the garbage collector, say
        compiling.set()
        release.wait(10)
        return RunCode(g.__code__, ())

    region = make_region(f, callback)
    results = []
    first = threading.Thread(target=lambda: results.append(region(1)))
    first.start()
    assert compiling.wait(10)
    assert region(2) == ("eager", 2)
    assert f(3) == ("eager", 3)
    release.set()
    first.join()
    assert results == [("compiled", 1)]

    def many():
        start.wait()
        results.extend(region(i) for i in range(2000))

    threads = [threading.Thread(target=many) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {kind for kind, _ in results} == {"compiled"}
    assert len(results) == 8001
    assert not _C.hook_installed()


def test_a_dead_object_frees_its_place_and_never_matches():
    class Model:
        pass

    def f(model):
        return "eager"

    def callback(frame):
        return RunGraph(lambda: ("compiled",), (), 0, (IdentityIs(Local("model"), frame.locals["model"]),))

    region = make_region(f, callback, Config(recompile_limit=2))
    assert [region(Model()) for _ in range(20)] == ["compiled"] * 20


def test_a_region_in_a_cycle_is_collected():
    class Model:
        pass

    def build():
        model = Model()

        def f():
            return model

        model.region = make_region(f, lambda frame: RunGraph(lambda: (model,), (), 0, (), keep_alive=(model,)))
        assert model.region() is model
        return weakref.ref(model)

    gone = build()
    gc.collect()
    assert gone() is None


def test_a_region_may_be_dropped_or_forgotten_while_it_runs():
    holder = {}

    def f(x):
        holder.clear()
        return x

    holder["region"] = make_region(f, replace({"f": f}))
    assert holder["region"](1) == 1

    def h(x):
        region.forget()
        return x

    region = make_region(h, replace({"h": h}))
    assert [region(1), region(2)] == [1, 2]


def test_reset_forgets_what_every_region_compiled():
    def f(x):
        return x

    def g(x):
        return ("compiled", x)

    seen = []
    regions = [make_region(f, replace({"f": g}, seen=seen)) for _ in range(2)]
    for times in (1, 2):
        for _ in range(2):
            assert [region(1) for region in regions] == [("compiled", 1)] * 2
        assert len(seen) == 2 * times
        reset()


class Payload:
    """An object whose death can be counted."""

    alive = 0

    def __init__(self):
        Payload.alive += 1

    def __del__(self):
        Payload.alive -= 1


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


@pytest.mark.parametrize("kind", ["direct code", "direct graph", "hook code", "hook graph", "error", "miss", "skip"])
def test_a_hundred_thousand_calls_leak_nothing(kind):
    def f(x, *args, y=1, **kwargs):
        cell = lambda: (x, y, kind)  # noqa: E731 - makes cells of three names
        return cell()[0]

    def rewritten(x, *args, y=1, **kwargs):
        cell = lambda: (x, y)  # noqa: E731 - makes cells of two parameters
        if kind == "error":
            raise ValueError(cell())
        return cell()[0]

    def caller(x):
        return f(x, x, y=2, z=x)

    def callback(frame):
        if frame.code is not f.__code__ or kind == "skip":
            return Skip()
        if "graph" in kind:
            return RunGraph(lambda *inputs: inputs, (Local("x"), Item(Local("args"), 0)), (1, 0), ())
        if kind == "miss":
            return RunCode(rewritten.__code__, (IdentityIs(Local("x"), frame.locals["x"]),))
        return RunCode(rewritten.__code__, ())

    through_hook = "hook" in kind or kind in ("error", "miss", "skip")
    region = make_region(caller if through_hook else f, callback, Config(recompile_limit=1))
    shared = object()

    def call():
        value = Payload()
        try:
            if through_hook:
                region(value)
            else:
                region(value, shared, y=2, z=value)
        except ValueError:
            pass

    for _ in range(200):
        call()
    gc.collect()
    before, memory, alive = sys.getrefcount(shared), _peak(), Payload.alive
    blocks = sys.getallocatedblocks()
    for _ in range(10_000 if kind in ("miss", "skip") else 100_000):
        call()
    gc.collect()
    assert abs(sys.getrefcount(shared) - before) <= 3
    assert Payload.alive == alive
    assert sys.getallocatedblocks() - blocks < 200
    assert _peak() - memory < 4096


def test_frames_at_the_edge_of_a_data_stack_chunk_are_popped():
    """A frame that starts a chunk of CPython's data stack takes the chunk with it when the hook ends it."""

    def leaf(a):
        return a

    def leaf_compiled(a):
        return a + 1

    def wide(n):
        b = c = d = e = g = h = i = j = k = n
        if n == 0:
            return leaf(0)
        return wide(n - 1) + (b - c) + (d - e) + (g - h) + (i - j) * k

    region = make_region(wide, replace({"leaf": leaf_compiled}))
    for depth in range(1, 240):
        assert region(depth) == 1


def test_code_that_does_not_fit_the_frame_is_refused():
    outside = 1

    def f(x):
        return x

    for wrong in (lambda y: y, lambda x, y: x, lambda x: outside):
        with pytest.raises(InternalError, match="closes over"):
            make_region(f, lambda frame: RunCode(wrong.__code__, ()))(1)
