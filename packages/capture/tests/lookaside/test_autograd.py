"""`autograd.Function`: part of the graph, differentiated as the user wrote it."""

from __future__ import annotations

import pytest
import torch
from both_ways import eager

from flambeau_capture import make_region

SCALE = 2.0
WEIGHT = torch.ones(3)


class Odd(torch.autograd.Function):
    """A wrong gradient, so that skipping it would show; reads a global in its backward."""

    @staticmethod
    def forward(ctx, x, power):
        ctx.save_for_backward(x)
        ctx.power = power
        return x**power

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * x * SCALE * ctx.power, None


class Takes(torch.autograd.Function):
    """Is given containers, and tells their classes."""

    @staticmethod
    def forward(ctx, x, parts, options):
        ctx.options = options
        assert type(parts) is list
        assert type(options) is dict
        return x * options["scale"] + parts[0] * len(parts)

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.options["scale"] * 3, None, None


class Doubles(torch.autograd.Function):
    """Writes to its argument, with a wrong gradient."""

    @staticmethod
    def forward(ctx, x):
        x.mul_(2)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad * 5


class Captures(torch.autograd.Function):
    """Uses a tensor that is no argument."""

    @staticmethod
    def forward(ctx, x):
        return x * WEIGHT

    @staticmethod
    def backward(ctx, grad):
        return grad * WEIGHT


def _gradient(function):
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    (grad,) = torch.autograd.grad(function(x).sum(), x)
    return grad


def test_a_function_is_one_node_with_its_own_gradient():
    """And a global that only the backward reads is guarded."""
    global SCALE

    def run(x):
        return Odd.apply(x, 3).sin()

    records = []
    region = make_region(run, eager, fullgraph=True, observer=records.append)
    try:
        for scale in (2.0, 5.0):
            SCALE = scale
            assert torch.equal(_gradient(region), _gradient(run))
    finally:
        SCALE = 2.0
    assert [record.operations for record in records] == [2, 2]


def test_what_cannot_be_in_the_graph_breaks(broken):
    """The result is eager's all the same."""
    assert broken(Captures.apply, torch.ones(3)) <= {"autograd-function", "unsupported-call"}
    assert broken(lambda x: Captures.apply(x) + 1, torch.ones(3)) == {"autograd-function"}


def _outcome(function, *args):
    """The result, whether it is a leaf, and the gradients."""
    given = [arg.clone().requires_grad_() for arg in args]
    result = function(*given)
    result.sum().backward()
    return [result.detach(), *(x.grad for x in given)]


@pytest.mark.parametrize(
    "function",
    [
        lambda x, y: Takes.apply(x, [y.detach(), 1], {"scale": 2.0}).sin(),
        lambda x, y: Doubles.apply(x * y).sin(),
        lambda x, y: (lambda z: (Doubles.apply(z), z.exp())[1])(x * y),
        lambda x, y: (lambda z: (Doubles.apply(z[:2]), z.exp())[1])(x * y),
    ],
)
def test_containers_as_arguments_and_arguments_that_are_written(function):
    """One node, twice, with the gradients that the program wrote."""
    region = make_region(function, eager, fullgraph=True)
    for x in (torch.tensor([1.0, 2.0, 3.0]), torch.tensor([0.5, 0.25, 4.0])):
        for found, expected in zip(_outcome(region, x, x + 1), _outcome(function, x, x + 1), strict=True):
            assert expected is None if found is None else torch.equal(found, expected)


KEPT = {"scale": 2.0}


def _changes_it_later(x):
    options = {"scale": 2.0}
    y = Takes.apply(x, [x.detach()], options)
    options["scale"] = 7.0
    return y


@pytest.mark.parametrize("function", [_changes_it_later, lambda x: Takes.apply(x, [x.detach()], KEPT)])
def test_containers_that_may_change_before_the_backward(function):
    """The program's own backward sees what is in them then."""

    def gradient(call):
        x = torch.ones(3, requires_grad=True)
        y = call(x)
        KEPT["scale"] = 11.0
        y.sum().backward()
        KEPT["scale"] = 2.0
        return x.grad

    assert torch.equal(gradient(make_region(function, eager)), gradient(function))
