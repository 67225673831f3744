"""Calls nested as deep as the program's limit allows: captured, run in plain Python or refused by Python itself, and nothing else."""

from __future__ import annotations

import subprocess
import sys
import threading
import warnings
from contextlib import contextmanager
from pathlib import Path

import pytest
import structlog
import torch
from both_ways import eager

from flambeau_capture import log, make_region


@contextmanager
def _limit(frames):
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(frames)
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


@pytest.fixture
def untraced(own_tracer):
    """Without the trace function of a measure of coverage: under one, each level of a program that breaks takes about one more of the frames that Python allows."""
    sys.settrace(None)


def _nested(depth, x):
    if depth == 0:
        return x + 1
    result = _nested(depth - 1, x)
    return result


def _broken_at_each_level(depth, x):
    print(end="")
    if depth == 0:
        return x + 1
    result = _broken_at_each_level(depth - 1, x * 1)
    return result * 2 - result


class Chain(torch.nn.Module):
    def __init__(self, length):
        super().__init__()
        self.next = Chain(length - 1) if length else None

    def forward(self, x):
        print(end="")
        return x + 1 if self.next is None else self.next(x) * 1


def _leaf(x):
    return x + 1


def _at_depth(depth, function, x):
    return function(x) if depth == 0 else _at_depth(depth - 1, function, x)


def _frames():
    count, frame = 0, sys._getframe(1)
    while frame is not None:
        count, frame = count + 1, frame.f_back
    return count


@pytest.mark.usefixtures("untraced")
@pytest.mark.parametrize("program", [_nested, _broken_at_each_level])
@pytest.mark.parametrize("depth", [150, 400, 900])
def test_programs_nest_as_many_calls_as_in_plain_python(program, depth):
    """What is ours (the frames behind a break) is not counted against the limit of the program."""
    with _limit(_frames() + depth + 40):
        assert make_region(program, eager)(depth, torch.ones(2)).tolist() == [2.0, 2.0]


@pytest.mark.usefixtures("untraced")
def test_modules_nest_as_deep_as_in_plain_python():
    chain = Chain(200)
    with _limit(_frames() + 4 * 200 + 40):
        assert make_region(chain, eager)(torch.ones(2)).tolist() == [2.0, 2.0]


def nest_beyond_the_stack():
    """Plain Python takes none of it for calls between functions; below some depth the program runs in plain Python, which is told once."""
    with _limit(60_000), structlog.testing.capture_logs() as events:
        region = make_region(_broken_at_each_level, eager)
        for depth in (50_000, 40_000):
            assert region(depth, torch.ones(2)).tolist() == [2.0, 2.0]
    structlog.reset_defaults()
    told = [event for event in events if event["event"] == log.NESTED_TOO_DEEP]
    assert [event["log_level"] for event in told] == ["warning"]


def test_calls_without_end_are_pythons_error():
    def without_end(x):
        print(end="")
        return without_end(x * 1) + 1

    before = sys.getrecursionlimit()
    with pytest.raises(RecursionError):
        make_region(without_end, eager)(torch.ones(2))
    assert sys.getrecursionlimit() == before
    for depth, fits in ((before - _frames() - 20, True), (before - _frames() + 20, False)):
        try:
            _nested(depth, 0)
        except RecursionError:
            assert not fits
        else:
            assert fits


@pytest.mark.parametrize("room", [12, 30, 100, 190])
def test_near_the_limit_a_frame_runs_as_it_is_and_is_captured_another_time(room):
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph

    region = make_region(_leaf, backend)
    x = torch.ones(2)
    with warnings.catch_warnings(), structlog.testing.capture_logs() as events:
        warnings.simplefilter("error")
        _at_depth(sys.getrecursionlimit() - _frames() - room - 1, _leaf, x)  # plain Python has the room
        assert _at_depth(sys.getrecursionlimit() - _frames() - room - 1, region, x).tolist() == [2.0, 2.0]
    structlog.reset_defaults()
    assert not graphs
    # Where there is room for it, the event is given.
    assert [event["event"] for event in events] == [log.NESTED_TOO_DEEP] * (room >= 100)
    assert region(x).tolist() == [2.0, 2.0]
    assert len(graphs) == 1


def nest_in_another_thread():
    """The hook is the process's: what other threads run meanwhile does not lie on their stacks either."""
    results = []

    def elsewhere():
        with_room = threading.Thread(target=lambda: results.append(_nested(50_000, 0)))
        with_room.start()
        with_room.join()

    def program(x):
        y = x + 1
        elsewhere()
        return y

    with _limit(60_000):
        make_region(program, eager)(torch.ones(2))
    assert results == [1]


@pytest.mark.parametrize("deep", [nest_beyond_the_stack, nest_in_another_thread])
def test_deeper_than_the_stack_of_a_thread(deep):
    """In a process of its own: torch.compile, where it has raised, leaves a hook on frames under which plain Python ends such a process."""
    code = f"from native.test_nested_calls import {deep.__name__}; {deep.__name__}()"
    done = subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[1], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_another_threads_region_is_captured_while_one_compiles():
    """The hook is taken away while the compiler runs; who needs it meanwhile puts it back."""
    graphs = []

    def below(x):
        return x * 3

    def other(x):
        print(end="")
        return below(x)

    def waiting(graph, inputs):
        def backend(graph, inputs):
            graphs.append(graph)
            return graph

        thread = threading.Thread(target=lambda: graphs.append(make_region(other, backend)(torch.ones(2)).tolist()))
        thread.start()
        thread.join()
        return graph

    assert make_region(_leaf, waiting)(torch.ones(2)).tolist() == [2.0, 2.0]
    assert graphs[-1] == [3.0, 3.0] and len(graphs) == 2
