"""Calls of what `leaf_function` decorates, as nodes: what they take and give, and what is refused."""

from __future__ import annotations

import gc

import pytest
import torch
from both_ways import eager, recorded

from flambeau_capture import GraphBreakError, leaf_calls, leaf_function, make_region

X = torch.arange(6.0).reshape(2, 3)


def leaf(function, fake, **options):
    return leaf_function(**options)(function).register_fake(fake)


def test_one_node_with_sizes_and_constants():
    inner = leaf(lambda x, n: (x[:n] * 2, x.shape[0], "text"), lambda x, n: (x[:n] * 1, x.shape[0], "text"))

    def f(x, n):
        part, rows, text = inner(x, n)
        assert text == "text"
        return part * rows

    graphs: list = []
    region = recorded(f, graphs, fullgraph=True)
    for rows, n in ((4, 2), (5, 3), (6, 4), (7, 5)):
        x = torch.ones(rows, 2)
        torch.testing.assert_close(region(x, n), f(x, n))
    assert len(graphs) <= 3
    assert all(sum("leaf" in node.name for node in graph.graph.nodes) == 1 for graph in graphs)


def test_calls_live_as_long_as_what_was_compiled():
    inner = leaf(lambda x: x * 2, torch.empty_like)
    before = set(leaf_calls._CALLS)
    for _ in range(3):
        region = make_region(lambda x: inner(x) + 1, eager, fullgraph=True)
        region(X)
        assert set(leaf_calls._CALLS) - before
        del region
        gc.collect()
    assert not set(leaf_calls._CALLS) - before


def test_what_a_call_assigns_to_its_module_is_refused():
    class Counting(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("total", torch.zeros(()))

    def counted(net, x):
        net.total = net.total + 1
        return x * net.total

    net, inner = Counting(), leaf(counted, lambda net, x: torch.empty_like(x))
    before = net.total
    with pytest.raises(RuntimeError, match="assigns total of a Counting"):
        make_region(lambda x: inner(net, x) + net.total, eager, fullgraph=True)(X)
    assert net.total is before


def test_the_dispatcher_outside_of_everything():
    plain = torch._C._dispatch_tls_local_include_set(), torch._C._dispatch_tls_local_exclude_set()
    leaf_calls._outside.cache_clear()
    with torch.inference_mode(), torch._C._AutoDispatchBelowAutograd():
        assert torch._C._dispatch_tls_local_exclude_set() != plain[1]
        assert leaf_calls._outside() == plain


def test_floats_are_constants():
    inner = leaf(lambda x, scale: x * scale, lambda x, scale: torch.empty_like(x))
    region = make_region(lambda x, scale: inner(x, scale=scale) + 1, eager, fullgraph=True)
    for scale in (2.0, 3.0, 4.0):
        torch.testing.assert_close(region(X, scale), X * scale + 1)


def test_what_a_hook_and_a_fake_are_is_guarded():
    log: list[int] = []
    inner = leaf(lambda x: x * 2, torch.empty_like)
    region = make_region(lambda x: inner(x) + 1, eager, fullgraph=True)
    x = X.clone().requires_grad_()
    region(x).sum().backward()
    inner.register_multi_grad_hook(lambda gradient: log.append(1))
    region(x).sum().backward()
    assert log == [1]


@pytest.mark.parametrize(
    ("fake", "expected"),
    [
        (lambda x: x.view(-1), "memory of an argument"),
        (lambda x: x + X.exp(), "leaf_function"),
        (lambda x: x.to_sparse(), "dense"),
    ],
)
def test_fakes_that_are_refused(fake, expected):
    inner = leaf(lambda x: x, fake)
    with pytest.raises(GraphBreakError, match=expected):
        make_region(lambda x: inner(x) + 1, eager, fullgraph=True)(X)


def test_what_is_refused():
    with pytest.raises(TypeError, match="leaf_function takes"):
        leaf_function(3)
    with pytest.raises(ValueError, match="no parameter"):
        leaf_function(lambda x: x, mutates_args={"y"})
    inner = leaf(lambda x, y: x.add_(1), lambda x, y: x, mutates_args={"x"})
    with pytest.raises(GraphBreakError, match="shares memory"):
        make_region(lambda x: inner(x, x[0]), eager, fullgraph=True)(X.clone())
