"""Frames of trace functions are left alone, and frames that a debugger may stop in."""

from __future__ import annotations

import bdb
import sys

import pytest

from flambeau_capture.config import Config
from flambeau_capture.frame import Skip
from flambeau_capture.hook import make_region

from .regions import replace

pytestmark = pytest.mark.usefixtures("own_tracer")


def inner(x):
    return x + 1


def outer(x):
    return inner(x) * 2


class Stepper(bdb.Bdb):
    """Goes on from each line as `go_on` does; keeps the functions that it stopped in."""

    def __init__(self, go_on=lambda self, frame: self.set_step()):
        super().__init__()
        self.stops = []
        self.go_on = go_on

    def user_line(self, frame):
        self.stops.append(frame.f_code.co_name)
        self.go_on(self, frame)


def replacing():
    """A region in which `inner` is another, and the names of the frames that were looked at."""
    seen = []
    return make_region(outer, replace({"inner": lambda x: x + 10}, seen=seen)), seen


@pytest.mark.parametrize("register", [sys.settrace, sys.setprofile])
def test_trace_functions_are_not_the_program(register):
    helped = []

    def helper(event):
        helped.append(event)

    def trace(frame, event, argument):
        helper(event)
        return trace

    region, seen = replacing()
    register(trace)
    try:
        result = region(1)
    finally:
        register(None)
    assert result == 22 and "call" in helped
    assert "trace" not in seen and "helper" not in seen and {"outer", "inner"} <= set(seen)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="there is no sys.monitoring")
def test_monitoring_callbacks_are_not_the_program():
    told = []

    def start(code, offset):
        told.append(code.co_name)

    region, seen = replacing()
    monitoring = sys.monitoring
    monitoring.use_tool_id(3, "a test")
    monitoring.register_callback(3, monitoring.events.PY_START, start)
    monitoring.set_events(3, monitoring.events.PY_START)
    try:
        result = region(1)
    finally:
        monitoring.set_events(3, 0)
        monitoring.free_tool_id(3)
    assert result == 22 and "outer" in told
    assert "start" not in seen


def test_what_a_debugger_steps_into_runs_as_it_is():
    region, seen = replacing()
    assert region(1) == 22
    seen.clear()
    stepper = Stepper()
    assert stepper.runcall(region, 1) == 4
    assert stepper.stops == ["outer", "inner"] and not seen
    assert region(1) == 22


def test_stepping_over_a_call_leaves_it_compiled():
    region, _ = replacing()
    stepper = Stepper(bdb.Bdb.set_next)
    assert stepper.runcall(lambda: region(1)) == 22
    assert set(stepper.stops) == {"<lambda>"}


def test_breakpoints_are_reached():
    region, _ = replacing()
    stepper = Stepper(lambda self, frame: self.set_continue())
    assert stepper.set_break(__file__, inner.__code__.co_firstlineno + 1) is None
    try:
        assert stepper.runcall(lambda: region(1)) == 4
        assert stepper.stops == ["<lambda>", "inner"]
    finally:
        stepper.clear_all_breaks()
    stepper.stops.clear()
    assert stepper.runcall(lambda: region(1)) == 22


def test_strict_regions_do_not_fail_under_a_debugger():
    region = make_region(outer, lambda frame: Skip(), Config(fullgraph=True))
    assert Stepper().runcall(region, 1) == 4


def test_methods_that_trace_are_no_debuggers():
    class Counter:
        lines = 0

        def trace(self, frame, event, argument):
            self.lines += event == "line"
            return self.trace

    region, seen = replacing()
    counter = Counter()
    sys.settrace(counter.trace)
    try:
        result = region(1)
    finally:
        sys.settrace(None)
    assert result == 22 and counter.lines and "trace" not in seen
