"""`error_on_graph_break` and other settings for a part of a program: in plain Python, inside of captured frames, and in frames that are cut in between."""

from __future__ import annotations

import threading

import pytest
import torch
from both_ways import eager, recorded

from flambeau_capture import (
    dont_skip_tracing,
    error_on_graph_break,
    graph_break,
    make_region,
    override_cudagraphs,
    patch_dynamo_config,
)
from flambeau_capture.errors import GraphBreakError, OptionError
from flambeau_capture.scopes import _IN_FORCE

X = torch.arange(4.0)


@pytest.fixture(autouse=True)
def nothing_left():
    """No test leaves a scope entered."""
    yield
    assert _IN_FORCE.get() == ()


def breaking(x):
    y = x + 1
    graph_break()
    return y * 2


def test_a_break_inside_is_an_error_and_outside_is_none():
    def inside(x):
        with error_on_graph_break(True):
            return breaking(x)

    def outside(x):
        with error_on_graph_break(True):
            x = x + 1
        return breaking(x)

    with pytest.raises(GraphBreakError, match="user-requested.*graph_break"):
        make_region(inside, eager)(X)
    graphs: list[object] = []
    assert recorded(outside, graphs)(X).equal(outside(X))
    assert len(graphs) == 3


def test_scopes_nest_and_the_innermost_decides():
    allowed = error_on_graph_break(False)

    def f(x):
        with error_on_graph_break(True):
            x = x * 3
            with allowed:
                x = breaking(x)
            x = x - 1
        return x

    def g(x):
        with error_on_graph_break(True):
            with error_on_graph_break(False):
                x = breaking(x)
            graph_break()
            return x

    graphs: list[object] = []
    region = recorded(f, graphs)
    for _ in range(3):
        assert region(X).equal(f(X))
    assert len(graphs) >= 2
    with pytest.raises(GraphBreakError):
        make_region(g, eager)(X)


def test_decorated_functions():
    strict, lax = error_on_graph_break(True)(breaking), error_on_graph_break(False)(breaking)
    assert strict.__name__ == "breaking"
    with pytest.raises(GraphBreakError):
        make_region(lambda x: strict(x) + 1, eager)(X)
    with pytest.raises(GraphBreakError):
        make_region(strict, eager)(X)
    region = make_region(lambda x: lax(x) + 1, eager, error_on_graph_break=True)
    assert region(X).equal(breaking(X) + 1)
    with pytest.raises(GraphBreakError):
        make_region(breaking, eager, error_on_graph_break=True)(X)
    assert strict(X).equal(breaking(X))


def test_fullgraph_goes_before():
    with pytest.raises(GraphBreakError, match="one graph"):
        make_region(lambda x: error_on_graph_break(False)(breaking)(x), eager, fullgraph=True)(X)


def test_a_scope_around_the_call_counts_for_what_is_captured_then():
    region = make_region(breaking, eager)
    with error_on_graph_break(True), pytest.raises(GraphBreakError):
        region(X)
    assert region(X).equal(breaking(X))


def test_an_exception_leaves_the_scope():
    def f(x, fail):
        try:
            with error_on_graph_break(True):
                x = x + 1
                if fail:
                    raise ValueError
        except ValueError:
            x = x - 10
        return breaking(x)

    region = make_region(f, eager)
    for fail in (True, False, True):
        assert region(X, fail).equal(f(X, fail))


def test_an_error_of_the_program_is_its_own():
    def f(x):
        with error_on_graph_break(True):
            return x[100]

    with pytest.raises(IndexError):
        make_region(f, eager)(X)


def test_scalars_are_kept_in_the_graph_where_a_scope_says_so():
    def f(x):
        with patch_dynamo_config(capture_scalar_outputs=True):
            return x * x.sum().item()

    def without(x):
        with patch_dynamo_config({"capture_scalar_outputs": False}):
            return x * x.sum().item()

    for function, count, default in ((f, 1, False), (without, 2, True)):
        graphs: list[object] = []
        region = recorded(function, graphs, capture_scalar_outputs=default)
        for _ in range(2):
            assert region(X).equal(function(X))
        assert len(graphs) == count


def test_a_backend_that_refuses_numbers_is_not_asked_again():
    from flambeau_capture import NumbersRefused

    def backend(graph, inputs):
        if graph.meta.get("is_open"):
            raise NumbersRefused
        return graph.forward

    def f(x):
        with patch_dynamo_config(capture_scalar_outputs=True):
            return x * x.sum().item()

    assert make_region(f, backend)(X).equal(f(X))


def test_what_does_not_act_while_tracing_is_refused():
    for changes in ({"recompile_limit": 3}, {"nothing": 1}):
        with pytest.raises(OptionError, match="no setting that acts while tracing"):
            patch_dynamo_config(**changes)
    with pytest.raises(OptionError):
        error_on_graph_break("yes")
    with pytest.raises(OptionError):
        patch_dynamo_config("unroll_limit", 0)


def test_functions_of_torch_that_are_skipped_are_traced_where_asked():
    from torch.utils.data import default_convert

    def f(x):
        return default_convert(x) + 1

    graphs: list[object] = []
    assert recorded(f, graphs, fullgraph=True, dont_skip_tracing=True)(X).equal(f(X))
    with pytest.raises(GraphBreakError):
        make_region(f, eager, fullgraph=True)(X)

    @dont_skip_tracing
    def g(x):
        return default_convert(x) + 1

    assert recorded(g, graphs, fullgraph=True)(X).equal(g(X))

    def h(x):
        with dont_skip_tracing():
            return default_convert(x) + 1

    assert recorded(h, graphs, fullgraph=True)(X).equal(h(X))


def test_what_is_said_of_recording_is_told_of_the_graph():
    """Of the operations in it, and not of blocks without one; where two parts differ it is not recorded."""
    told = []

    def backend(graph, inputs):
        told.append(graph.meta["recorded"])
        return graph.forward

    def function(x, first, second):
        with override_cudagraphs(fwd=first):
            x = x + 1
        with override_cudagraphs(fwd=second, bwd=True):
            x = x * 2
        with override_cudagraphs(fwd=False):
            pass
        return x

    region = make_region(function, backend)
    for first, second in ((None, None), (True, None), (True, False), (False, True)):
        region(torch.ones(2), first, second)
    assert told == [(None, True), (True, True), (False, True), (False, True)]


@pytest.mark.parametrize("order", [(None, False, None, True, False), (False, None, False)])
def test_what_is_said_of_recording_around_a_call_is_guarded(order):
    """A call finds what was compiled under the same word, in its own thread; settings that act on the trace alone have nothing compiled anew."""
    told = []

    def backend(graph, inputs):
        told.append(graph.meta["recorded"])
        return graph.forward

    region = make_region(lambda x: x + 1, backend)

    def call(said):
        with override_cudagraphs(bwd=said) if said is not None else error_on_graph_break(True):
            region(X)

    for said in order:
        call(said)
    assert told == [(None, said) for said in dict.fromkeys(order)]
    with override_cudagraphs(bwd=not order[0]), override_cudagraphs(bwd=order[0]):
        region(X)
        thread = threading.Thread(target=call, args=(order[1],))
        thread.start()
        thread.join()
    assert len(told) == len(set(order))
