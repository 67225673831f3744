"""The native region and frame hook: replacing frames, references, exceptions, recursion, generators, threads."""

from __future__ import annotations

import gc
import resource
import sys
import threading
import weakref

import pytest
import torch

from flambeau_capture.config import Config
from flambeau_capture.errors import GuardSelfCheckError, InternalError, RecompileLimitError
from flambeau_capture.frame import FrameInfo, RunCode, RunGraph, Skip, SkipAlways
from flambeau_capture.guards.spec import ConstantIs, IdentityIs, PythonCheck, TensorMatch, TypeIs
from flambeau_capture.hook import call_disabled, make_region
from flambeau_capture.hook_py import PyRegion
from flambeau_capture.native import _C
from flambeau_capture.sources.source import Attribute, Global, InstanceDict, Item, Local


def replace(table, *guards, seen=None):
    """A callback that runs the code of `table[name]` in place of the frame called `name`."""

    def callback(frame: FrameInfo):
        if seen is not None:
            seen.append(frame.code.co_name)
        other = table.get(frame.code.co_name)
        return Skip() if other is None else RunCode(other.__code__, tuple(guards))

    return callback


def test_rewritten_code_runs_in_place_of_the_frame():
    def f(x):
        return x + 1

    def g(x):
        return x * 10

    seen = []
    region = make_region(f, replace({"f": g}, TypeIs(Local("x"), int), seen=seen))
    assert [region(1), region(2), region(x=3)] == [10, 20, 30]
    assert seen == ["f"]
    assert not _C.hook_installed()
    assert _C.active_region() is None


def test_every_kind_of_parameter_reaches_the_rewritten_code():
    def f(a, /, b, *args, c=3, d, **kwargs):
        return None

    def g(a, /, b, *args, c=3, d, **kwargs):
        held = lambda: (a, d)  # noqa: E731 - makes cells of two parameters
        return a, b, args, c, d, kwargs, held()

    region = make_region(f, replace({"f": g}))
    for call in [
        lambda r: r(1, 2, d=4),
        lambda r: r(1, 2, 3, 4, d=5, c=6, z=7),
        lambda r: r(1, b=2, d=3, y=1, a=9),
        lambda r: r(*(1, 2), d=1),
    ]:
        assert call(region) == call(g) == call(PyRegion(f, replace({"f": g})))


@pytest.mark.parametrize("args, kwargs", [((), {}), ((1, 2, 3), {}), ((1,), {"a": 2}), ((1,), {"nope": 2})])
def test_calls_that_do_not_fit_the_signature_raise_as_in_eager(args, kwargs):
    def f(a, b=2):
        return a

    region = make_region(f, replace({"f": f}))
    region(1)
    with pytest.raises(TypeError) as expected:
        f(*args, **kwargs)
    with pytest.raises(TypeError) as actual:
        region(*args, **kwargs)
    assert str(actual.value) == str(expected.value)


def test_closures_keep_their_own_cells():
    def make(z):
        def h(x):
            return x + z

        return h

    def make_other(z):
        def h(x):
            return x - z

        return h

    region = make_region(lambda f, x: f(x), replace({"h": make_other(0)}))
    first, second = make(5), make(7)
    assert [region(first, 1), region(second, 1), region(first, 2)] == [-4, -6, -3]


def test_guards_choose_between_entries_and_the_limit_falls_back_to_eager():
    def f(x):
        return ("eager", x)

    calls = []

    def callback(frame):
        x = frame.locals["x"]
        calls.append((x, frame.entries))
        return RunGraph(lambda: (("compiled", x),), (), 0, (ConstantIs(Local("x"), x),))

    region = make_region(f, callback, Config(recompile_limit=3))
    assert [region(i) for i in range(5)] == [
        ("compiled", 0),
        ("compiled", 1),
        ("compiled", 2),
        ("eager", 3),
        ("eager", 4),
    ]
    assert [region(i)[0] for i in (2, 1, 0, 3)] == ["compiled", "compiled", "compiled", "eager"]
    assert calls == [(0, 0), (1, 1), (2, 2)]
    strict = make_region(f, callback, Config(recompile_limit=1, fail_on_recompile_limit=True))
    strict(0)
    with pytest.raises(RecompileLimitError, match="expected 0, actual 1"):
        strict(1)


def test_limits_belong_to_a_region():
    def f(x):
        return ("eager", x)

    def callback(frame):
        x = frame.locals["x"]
        return RunGraph(lambda: (("compiled", x),), (), 0, (ConstantIs(Local("x"), x),))

    first = make_region(f, callback, Config(recompile_limit=1))
    second = make_region(f, callback, Config(recompile_limit=1))
    assert first(0)[0] == second(1)[0] == "compiled"
    assert first(1)[0] == "eager"


@pytest.mark.parametrize("boxed", [False, True])
@pytest.mark.parametrize(
    "outputs, expected", [(0, "a"), ((0, 1), ("a", "b")), ((1, None), ("b", None)), ([1, 0], ["b", "a"]), (None, None)]
)
def test_a_graph_entry_returns_what_the_frame_returned(outputs, expected, boxed):
    def f(pair):
        return None

    received = []

    def compiled(*inputs):
        received.extend(inputs[0] if boxed else inputs)
        return ("a", "b")

    compiled._boxed_call = boxed
    region = make_region(f, lambda frame: RunGraph(compiled, (Item(Local("pair"), 1), Local("pair")), outputs, ()))
    pair = (1, 2)
    for _ in range(2):
        assert region(pair) == expected
    assert received == [2, pair] * 2


def test_bad_results_of_a_compiled_graph_are_errors():
    def f():
        return None

    with pytest.raises(TypeError, match="must return a tuple"):
        make_region(f, lambda frame: RunGraph(lambda: 3, (), 0, ()))()
    with pytest.raises(RuntimeError, match="fewer values"):
        make_region(f, lambda frame: RunGraph(lambda: (), (), 0, ()))()


def test_guards_that_do_not_hold_on_their_own_frame_are_refused():
    def f(x):
        return x

    region = make_region(f, lambda frame: RunGraph(lambda: (1,), (), 0, (ConstantIs(Local("x"), 99),)))
    with pytest.raises(GuardSelfCheckError, match="expected 99, actual 1"):
        region(1)
    assert not _C.hook_installed()


def test_an_error_of_the_callback_reaches_the_caller():
    def f(x):
        return x

    def callback(frame):
        raise KeyError("compiler")

    region = make_region(f, callback)
    for _ in range(3):
        with pytest.raises(KeyError, match="compiler"):
            region(object())
    assert not _C.hook_installed()


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


def test_threads_share_entries_and_others_are_left_alone():
    def f(x):
        return ("eager", x)

    def g(x):
        return ("compiled", x)

    start = threading.Barrier(4)
    release = threading.Event()
    compiling = threading.Event()

    def callback(frame):
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
        cell = lambda: (x, y, kind)  # noqa: E731
        return cell()[0]

    def rewritten(x, *args, y=1, **kwargs):
        cell = lambda: (x, y)  # noqa: E731
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


FLAG = 0


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
