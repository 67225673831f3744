"""Calls of modules that are like an earlier one: recorded again without a trace, as a trace would have recorded them; never where something differs."""

from __future__ import annotations

import copy

import pytest
import torch
from both_ways import eager
from torch.utils._pytree import tree_leaves

from flambeau_capture import make_region, pipeline
from flambeau_capture.interp.repeated_calls import RepeatedCalls

from . import repeated_layers as zoo


@pytest.fixture
def repeated(monkeypatch):
    """The modules whose calls were recorded again, while everything that is traced is traced a second time without that."""
    found, plain = [], []
    call, again, trace_frame = RepeatedCalls.call, RepeatedCalls._repeated, pipeline.trace_frame

    def calling(self, module, args, kwargs, trace):
        return trace() if plain else call(self, module, args, kwargs, trace)

    def repeating(self, earlier, module, *rest):
        result = again(self, earlier, module, *rest)
        if result is not None:
            found.append(module.object)
        return result

    def both(*given):
        first = trace_frame(*given)
        plain.append(True)
        try:
            second = trace_frame(*given)
        finally:
            plain.clear()
        assert described(first) == described(second)
        return first

    monkeypatch.setattr(RepeatedCalls, "call", calling)
    monkeypatch.setattr(RepeatedCalls, "_repeated", repeating)
    monkeypatch.setattr(pipeline, "trace_frame", both)
    return found


def described(traced):
    """All that becomes of a trace; numbers of calls by the order in which they come up."""
    result, numbers = traced.result, {}
    if result.graph is None:
        return None
    nodes = list(result.graph.graph.nodes)
    return (
        result.graph.code,
        [str(source) for source in result.inputs],
        [facts(node.meta.get("val")) for node in nodes],
        [node.meta.get("stack") for node in nodes],
        [[(numbers.setdefault(n, len(numbers)), *rest) for n, *rest in node.meta.get("calls", ())] for node in nodes],
        sorted(str((type(guard).__name__, str(getattr(guard, "source", "")))) for guard in traced.guards),
        type(result.exit),
    )


def facts(value):
    if isinstance(value, torch.Tensor):
        return value.dtype, tuple(value.shape), value.stride(), value.requires_grad, value.is_leaf, value._version
    return [facts(part) for part in value] if isinstance(value, (tuple, list)) else None


def check(module, x, calls=2):
    """Values, gradients and buffers as plain Python has them, random numbers included."""
    # What closes over its layers, or has them in a global, cannot be copied; it has no state.
    is_bound = isinstance(module, (zoo.Known, zoo.Enclosed))
    modules = module, module if is_bound else copy.deepcopy(module)
    functions = make_region(modules[0].forward, eager), modules[1].forward
    for _ in range(calls):
        outcomes = []
        for function, one in zip(functions, modules, strict=True):
            torch.manual_seed(3)
            one.zero_grad()
            given = x.clone().requires_grad_()
            tensors = [part for part in tree_leaves(function(given)) if isinstance(part, torch.Tensor)]
            sum(part.sum() for part in tensors if part.requires_grad).backward()
            gradients = [given.grad, *(None if p.grad is None else p.grad.clone() for p in one.parameters())]
            outcomes.append([*tensors, *gradients, *(b.detach().clone() for b in one.buffers())])
        for found, expected in zip(*outcomes, strict=True):
            torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("name", zoo.CHANGES)
def test_layers_that_differ_are_traced(name, repeated):
    change, times = zoo.CHANGES[name]
    stack = zoo.Stack(change)
    check(stack, torch.randn(3, 8), calls=1)
    layers = [module for module in repeated if isinstance(module, zoo.Layer)]
    assert len(layers) == times and (times == 4 or stack.layers[4] not in layers)


@pytest.mark.parametrize("name", zoo.STACKS)
def test_calls_that_differ_are_traced(name, repeated):
    """What is recorded again is recorded as a trace would, and no more than is alike."""
    make, times = zoo.STACKS[name]
    zoo.SEEN.clear()
    check(make(), torch.randn(3, 8), calls=1)
    assert len([module for module in repeated if isinstance(module, zoo.Small)]) == times


@pytest.mark.parametrize("name", [name for name in zoo.STACKS if name not in zoo.KEEP_HISTORY])
def test_later_calls_are_as_plain_python(name):
    """State that the first call left is read by the second."""
    zoo.SEEN.clear()
    check(zoo.STACKS[name][0](), torch.randn(3, 8), calls=3)


def test_a_guard_that_no_longer_holds_of_one_of_them(repeated):
    """A layer that was not traced is guarded as those that were."""
    stack, x = zoo.Stack(), torch.randn(3, 8)
    records = []
    region = make_region(stack.forward, eager, observer=records.append)
    for change in (lambda layers: None, zoo.unlike("scale", 0.1), zoo.hooked, zoo.own_forward):
        change(stack.layers)
        torch.manual_seed(0)
        found = region(x)
        torch.manual_seed(0)
        assert torch.equal(found, stack(x))
    # Once the scale is a number that changes, sizes and numbers are symbolic from that layer on.
    assert len(records) == 4 and len([module for module in repeated if isinstance(module, zoo.Layer)]) >= 4 + 3 * 2


def test_one_that_breaks_is_cut_as_ever():
    """Nothing is remembered of what could not be traced to its end."""

    class Breaking(zoo.Layer):
        def forward(self, x):
            x = super().forward(x)
            print(end="")
            return x

    class Breaks(zoo.Stack):
        make = Breaking

    check(Breaks(), torch.randn(3, 8))
