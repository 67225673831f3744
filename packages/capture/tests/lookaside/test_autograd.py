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
    x = torch.ones(3, requires_grad=True)
    assert broken(Captures.apply, x) <= {"autograd-function", "unsupported-call"}
    assert broken(lambda x: Captures.apply(x) + 1, x) == {"autograd-function"}


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


LAYERS = torch.nn.ModuleList([torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)])


class Layers(torch.autograd.Function):
    """Is given modules, as functions of reversible layers are; its first argument is a result too."""

    @staticmethod
    def forward(ctx, x, layers, record):
        ctx.layers = layers
        y = x
        for layer in layers:
            y = layer(y)
        ctx.save_for_backward(y)
        record.append(ctx.needs_input_grad)
        return x, y, len(layers)

    @staticmethod
    def backward(ctx, *gradients):
        raise NotImplementedError


class SetsUp(torch.autograd.Function):
    """Has a `setup_context`, and takes an existing dict."""

    @staticmethod
    def forward(x, options):
        return x * options["scale"]

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.scale = inputs[1]["scale"]

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.scale, None


@pytest.mark.parametrize("grad", ["asked for", "not enabled", "not required"])
@pytest.mark.parametrize(
    "function",
    [
        lambda x, record: Layers.apply(x, LAYERS, record),
        lambda x, record: (Takes.apply(x, [x.detach()], KEPT),),
        lambda x, record: (SetsUp.apply(x, KEPT),),
        lambda x, record: (Captures.apply(x),),
    ],
)
def test_what_cannot_be_a_node_is_its_forward_where_no_gradient_is_asked_for(function, grad):
    """One graph, which does all that the forward does: results, which of them are the arguments, and what it changes."""

    def outcome(call):
        x, record = torch.tensor([1.0, 2.0, 3.0], requires_grad=grad != "not required"), []
        with torch.set_grad_enabled(grad != "not enabled"):
            results = call(x, record)
        kinds = [(r.tolist(), r.requires_grad, r is x, r._base is x) if torch.is_tensor(r) else r for r in results]
        return kinds, record

    region = make_region(function, eager, fullgraph=grad != "asked for")
    with torch.no_grad():
        for parameter in LAYERS.parameters():
            parameter.requires_grad_(grad != "not required")
    assert [outcome(region), outcome(region)] == [outcome(function), outcome(function)]


def test_writing_to_an_argument_where_no_gradient_is_asked_for():
    class Writes(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, options):
            ctx.mark_dirty(x)
            return x.mul_(options["scale"])

    def function(x):
        y = Writes.apply(x, KEPT)
        return y is x, y + x

    with torch.no_grad():
        found, expected = make_region(function, eager)(torch.ones(3)), function(torch.ones(3))
    assert found[0] == expected[0]
    assert torch.equal(found[1], expected[1])
