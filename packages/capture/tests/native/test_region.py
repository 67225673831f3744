"""The native region: replacing frames, arguments, entries and their limit, errors."""

from __future__ import annotations

import functools
import math
import sys

import pytest
import structlog
import torch

from flambeau_capture import log
from flambeau_capture.config import Config
from flambeau_capture.errors import GuardSelfCheckError, InternalError, RecompileLimitError
from flambeau_capture.frame import RunGraph, Skip, SkipAlways
from flambeau_capture.guards.spec import ConstantIs, IdentityIs, TypeIs
from flambeau_capture.hook import make_region
from flambeau_capture.hook_py import PyRegion
from flambeau_capture.native import _C
from flambeau_capture.sources.source import Item, Local

from .regions import replace


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


def test_what_a_closure_holds_is_guarded():
    held = 1

    def f():
        return held

    def callback(frame):
        value = frame.locals["held"]
        return RunGraph(lambda: (value * 10,), (), 0, (ConstantIs(Local("held"), value),))

    regions = make_region(f, callback), PyRegion(f, callback)
    for value, expected in [(1, 10), (2, 20), (1, 10)]:
        held = value
        assert [region() for region in regions] == [expected, expected]


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
    strict = make_region(f, callback, Config(recompile_limit=1, fail_on_recompile_limit_hit=True))
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
    """As the cause of ours."""

    def f(x):
        return x

    def callback(frame):
        raise KeyError("compiler")

    region = make_region(f, callback)
    for _ in range(3):
        with pytest.raises(InternalError, match="compiler") as raised:
            region(object())
        assert type(raised.value.__cause__) is KeyError
    assert not _C.hook_installed()


def test_the_limit_is_told_once():
    """One warning, with the reasons, however often the function is called past its limit."""

    def f(x):
        return x

    def callback(frame):
        x = frame.locals["x"]
        return RunGraph(lambda: (x,), (), 0, (ConstantIs(Local("x"), x),))

    with structlog.testing.capture_logs() as events:
        region = make_region(f, callback, Config(recompile_limit=2))
        assert [region(i) for i in range(8)] == list(range(8))
    structlog.reset_defaults()
    told = [event for event in events if event["event"] == log.RECOMPILE_LIMIT]
    assert [(event["limit"], event["log_level"], len(event["reasons"])) for event in told] == [(2, "warning", 2)]
    assert "expected 1, actual 2" in told[0]["reasons"][0]


class Owner(torch.nn.Module):
    """Its method is compiled."""

    def run(self, x):
        return ("eager", x)


def test_every_module_has_the_limit_for_itself():
    """Modules share the code of their methods, not its entries' limit; together they have 32 times as many."""

    def callback(frame):
        if frame.code.co_name != "run":
            return Skip()
        owner, x = frame.locals["self"], frame.locals["x"]
        guards = (IdentityIs(Local("self"), owner), ConstantIs(Local("x"), x))
        return RunGraph(lambda: (("compiled", x),), (), 0, guards)

    region = make_region(lambda owner, x: owner.run(x), callback, Config(recompile_limit=2))
    owners = [Owner() for _ in range(40)]
    for owner in owners[:3]:
        assert [region(owner, x)[0] for x in range(4)] == ["compiled", "compiled", "eager", "eager"]
    compiled = sum(region(owner, x)[0] == "compiled" for owner in owners for x in range(4))
    assert compiled == 2 * 32


def test_a_frame_that_is_never_captured_is_asked_about_less_and_less():
    """As often as there may be entries, then after twice as many calls each time; one that is captured at last stays so."""
    asked = []

    def f(x):
        return ("eager", x)

    def callback(frame):
        asked.append(frame.locals["x"])
        return Skip() if len(asked) < 8 else RunGraph(lambda: (("compiled", 0),), (), 0, ())

    region = make_region(f, callback, Config(recompile_limit=3))
    results = [region(x)[0] for x in range(1, 200)]
    assert asked == [1, 2, 3, 4, 8, 16, 32, 64]
    assert results == ["eager"] * 63 + ["compiled"] * 136


def test_a_frame_that_cannot_be_captured_is_an_error_every_time():
    """However often it was: it never runs in eager for having failed before."""

    def callback(frame):
        raise ValueError("no")

    region = make_region(lambda x: x, callback, Config(recompile_limit=2))
    for x in range(20):
        with pytest.raises(InternalError, match="ValueError: no"):
            region(x)


def test_a_module_among_the_arguments_has_the_limit_for_itself():
    """Where the first argument is none, as in the rest of a loop's round."""

    def f(x, owner):
        return "eager"

    def callback(frame):
        guards = (IdentityIs(Local("owner"), frame.locals["owner"]), ConstantIs(Local("x"), frame.locals["x"]))
        return RunGraph(lambda: ("compiled",), (), 0, guards)

    region = make_region(f, callback, Config(recompile_limit=2))
    for owner in [Owner() for _ in range(3)]:
        assert [region(x, owner) for x in range(4)] == ["compiled", "compiled", "eager", "eager"]


def _decorated(function):
    @functools.wraps(function)
    def wrapper(x):
        return "eager", function(x)

    return wrapper


def _one(x):
    return x


def _two(x):
    return x


def _of_wrapped(frame):
    """The wrapper's frame alone, for these very functions and this number."""
    if frame.code.co_name != "wrapper":
        return Skip()
    guards = (IdentityIs(Local("function"), frame.locals["function"]), ConstantIs(Local("x"), frame.locals["x"]))
    return RunGraph(lambda: ("compiled",), (), 0, guards)


@pytest.mark.parametrize(
    "wrapped",
    [
        (_decorated(_one), _decorated(_two)),
        (_decorated(_decorated(_one)), _decorated(_decorated(_two))),
        (_decorated(math.sin), _decorated(math.cos)),
        (_decorated(torch.nn.Identity()), _decorated(torch.nn.Identity())),
        (_decorated(Owner().run), _decorated(Owner().run)),
    ],
    ids=["functions", "twice", "builtins", "modules", "methods"],
)
def test_what_a_decorator_wraps_has_the_limit_for_itself(wrapped):
    """All that one decorator makes has one code: none of it spends the others' limit, and the last is told of its own."""
    region = make_region(lambda call, x: call(x), _of_wrapped, Config(recompile_limit=2))
    with structlog.testing.capture_logs() as events:
        for call in wrapped:
            assert [region(call, x) == "compiled" for x in range(4)] == [True, True, False, False]
    structlog.reset_defaults()
    assert len([event for event in events if event["event"] == log.RECOMPILE_LIMIT]) == 2


def test_a_function_that_is_made_in_each_call_has_one_limit():
    """Another closure of the same code is no other function: it would have a new limit with each call."""

    def made(function):
        def inner(x):
            return function(x)

        return _decorated(inner)

    region = make_region(lambda call, x: call(x), _of_wrapped, Config(recompile_limit=2))
    calls = [made(_one) for _ in range(5)]  # entries of one that is gone would go with it
    assert [region(call, 0) == "compiled" for call in calls] == [True, True, False, False, False]


def test_a_wrapper_that_is_left_alone_for_one_function_is_not_for_others():
    """Where it is for one after the other, the code is to blame."""
    asked = []

    def callback(frame):
        function = frame.locals.get("function")
        asked.append(function)
        if function is _one:
            return SkipAlways()
        return _of_wrapped(frame)

    region = make_region(lambda call, x: call(x), callback, Config())
    left, taken = _decorated(_one), _decorated(_two)
    for _ in range(3):
        assert region(left, 0) == ("eager", 0)
        assert region(taken, 0) == "compiled"
    assert asked.count(_one) == 1 and asked.count(_two) == 1


def test_the_call_machinery_of_modules_is_passed_through():
    """Frames of `Module.__call__` are asked about for the region's own module alone."""

    class Inner(torch.nn.Module):
        def forward(self, x):
            return x + 1

    class Outer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Inner()

        def forward(self, x):
            return self.inner(x) * 2

    seen = []
    outer = Outer()
    assert make_region(outer, replace({}, seen=seen))(1) == 4
    assert [name for name in seen if name != "__getattr__"] == ["_wrapped_call_impl", "forward", "forward"]


def test_a_log_that_fails_leaves_the_result_of_a_call_that_runs_no_frame(monkeypatch):
    """Such a call is told of once, and again where everything was forgotten."""

    class Full:
        def info(self, event, **told):
            events.append(event)
            raise OSError("no space left")

    events, failed = [], []
    monkeypatch.setattr(sys, "unraisablehook", lambda told: failed.append(told.exc_type))
    region = make_region(len, replace({}))
    log.logger.send_to(Full())
    try:
        assert [region("ab"), region("abc")] == [2, 3]
        region.forget()
        assert region("a") == 1
    finally:
        log.logger.send_to(None)
    assert events == [log.NOTHING_CAPTURED] * 2
    assert failed == [OSError] * 2
