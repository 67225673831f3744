"""Calls of modules that are like an earlier one: recorded again without a trace, as a trace would have recorded them; never where something differs."""

from __future__ import annotations

import copy
import functools
from contextlib import nullcontext

import pytest
import torch
from both_ways import eager
from torch import nn
from torch.utils._pytree import tree_leaves

from flambeau_capture import make_region, pipeline
from flambeau_capture.interp.repeated_calls import RepeatedCalls

SEEN = []
ALL = []
FACTOR = 2.0
LAYERS = 6


class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 8)
        self.drop = nn.Dropout(0.3)

    def forward(self, x):
        return self.drop(self.second(torch.relu(self.first(x))))


class Layer(nn.Module):
    """A layer with state of many kinds, most of which its code reads."""

    def __init__(self, index):
        super().__init__()
        self.index, self.scale, self.name, self.flags = index, 0.5, "layer", {"add": True}
        self.norm, self.inner = nn.LayerNorm(8), Inner()
        self.register_buffer("shift", torch.full((8,), 0.1 * index))
        self.activation = torch.tanh

    def forward(self, x, mask=None, *, extra=()):
        y = self.norm(x) * self.scale + self.shift
        y = self.activation(self.inner(y))
        if mask is not None:
            y = y.masked_fill(mask, 0.0)
        for one in extra:
            y = y + one
        return x + y if self.flags["add"] else y


class Stack(nn.Module):
    """Layers one after the other; `change` makes one of them another."""

    def __init__(self, change=lambda layers: None, make=Layer):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(make(index) for index in range(LAYERS))
        change(self.layers)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


def unlike(name, value):
    """The fifth layer has another attribute, by path."""

    def change(layers):
        *path, last = name.split(".")
        owner = layers[4]
        for part in path:
            owner = getattr(owner, part)
        setattr(owner, last, value)

    return change


def own_forward(layers):
    layers[4].forward = lambda x: x.sin()


def hooked(layers):
    layers[4].inner.register_forward_hook(lambda module, args, result: result * 2)


def tied(layers):
    for layer in layers[1:]:
        layer.inner.first = layers[0].inner.first


def shared(layers):
    for place in range(1, LAYERS):
        layers[place] = layers[0]


def frozen(layers):
    layers[4].inner.first.weight.requires_grad_(False)


def other_class(layers):
    class Doubled(Inner):
        def forward(self, x):
            return super().forward(x) * 2

    torch.manual_seed(1)
    layers[4].inner = Doubled()


#: What differs -> how many of the four layers behind the second one are recorded again.
CHANGES = {
    "nothing": (lambda layers: None, 4),
    "a number": (unlike("scale", 0.25), 3),
    "a number that nobody reads": (unlike("index", 77), 4),
    "a name that nobody reads": (unlike("name", "other"), 4),
    "a dict's item": (unlike("flags", {"add": False}), 3),
    "a function": (unlike("activation", torch.sigmoid), 3),
    "a rate": (unlike("inner.drop.p", 0.9), 3),
    "a mode": (unlike("inner.drop.training", False), 3),
    "a parameter's size": (unlike("inner", nn.Sequential(nn.Linear(8, 8))), 3),
    "no parameter": (unlike("norm.bias", None), 3),
    "a frozen parameter": (frozen, 3),
    "a forward of its own": (own_forward, 3),
    "a hook": (hooked, 3),
    "a class": (other_class, 3),
    "tied parameters": (tied, 4),
    "one layer": (shared, 4),
}


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
    modules = module, module if isinstance(module, (Known, Enclosed)) else copy.deepcopy(module)
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
            outcomes.append([*tensors, *gradients, *(b.clone() for b in one.buffers())])
        for found, expected in zip(*outcomes, strict=True):
            torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("name", CHANGES)
def test_layers_that_differ_are_traced(name, repeated):
    change, times = CHANGES[name]
    stack = Stack(change)
    check(stack, torch.randn(3, 8), calls=1)
    layers = [module for module in repeated if isinstance(module, Layer)]
    assert len(layers) == times and (times == 4 or stack.layers[4] not in layers)


def test_a_guard_that_no_longer_holds_of_one_of_them(repeated):
    """A layer that was not traced is guarded as those that were."""
    stack, x = Stack(), torch.randn(3, 8)
    records = []
    region = make_region(stack.forward, eager, observer=records.append)
    for change in (
        lambda: None,
        lambda: unlike("scale", 0.1)(stack.layers),
        lambda: hooked(stack.layers),
        lambda: own_forward(stack.layers),
    ):
        change()
        torch.manual_seed(0)
        found = region(x)
        torch.manual_seed(0)
        assert torch.equal(found, stack(x))
    assert len(records) == 4 and len([module for module in repeated if isinstance(module, Layer)]) >= 4 + 3 * 2


class Masked(Stack):
    """Arguments by name, of several kinds."""

    def forward(self, x):
        mask, more = x > 0, [x.cos(), x.sin()]
        for layer in self.layers:
            x = layer(x, mask=mask, extra=(more[0], more[1]))
        return x


class Growing(Stack):
    """A list that has more in it for each layer."""

    def forward(self, x):
        more = []
        for layer in self.layers:
            x = layer(x, extra=more)
            more.append(x.mean())
        return x


class Alternating(Stack):
    """Sizes, types and what requires grad change between the calls."""

    def forward(self, x):
        x = self.layers[0](x)
        y = self.layers[1](x)
        z = self.layers[2](y[:2])
        with torch.no_grad():
            w = self.layers[3](x)
        v = self.layers[4](x.detach())
        return z, w, v, self.layers[5](x.t().contiguous().t())


class Modes(Stack):
    """Autocast around some of the calls."""

    def forward(self, x):
        for index, layer in enumerate(self.layers):
            with torch.autocast("cpu", torch.bfloat16) if index in (3, 4) else nullcontext():
                x = layer(x).float()
        return x


class Returning(nn.Module):
    """What a layer gives: an argument, a parameter, several tensors, containers, nothing."""

    def __init__(self, index):
        super().__init__()
        self.inner = Inner()

    def forward(self, x, state):
        y = self.inner(x) + x
        parts = y.chunk(2, -1)
        return {"y": y, "x": x, "parts": [parts[0], (parts[1], None)]}, self.inner.first.bias, state, 3


class Returns(Stack):
    def __init__(self):
        super().__init__(make=Returning)

    def forward(self, x):
        results, state = [], x.sum()
        for layer in self.layers:
            found, bias, state, number = layer(x, state)
            assert found["x"] is x
            x = found["y"] * number + bias.sum() + found["parts"][1][0].sum()
            results.append(found)
        return results, state


class Weighing(nn.Module):
    """Takes a weight as well, which may be its own."""

    def __init__(self, index):
        super().__init__()
        self.inner = Inner()

    def forward(self, x, weight):
        return self.inner(x) * weight.sum() + self.inner.first.weight.mean()


class Weighed(Stack):
    """All get the weight of the one layer that is remembered."""

    def __init__(self):
        super().__init__(make=Weighing)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x, self.layers[1].inner.first.weight)
        return x


class Upward(nn.Module):
    """Knows the stack that it is in, and asks the second layer there."""

    def __init__(self, index):
        super().__init__()
        self.inner, self.scale, self.up = Inner(), index, []

    def forward(self, x):
        second = self.up[0].layers[1]
        y = self.inner(x) * second.inner.first.weight.sum()
        return y + 1 if second is self else y


def upward():
    stack = Stack(make=Upward)
    for layer in stack.layers:
        layer.up.append(stack)
    return stack


class Knowing(nn.Module):
    """Asks for the second of all layers, by a name of the module that this file is."""

    def __init__(self, index):
        super().__init__()
        self.inner = Inner()

    def forward(self, x):
        return self.inner(x) * ALL[1].inner.first.weight.sum()


class Known(Stack):
    """Layers in a list that is global."""

    def __init__(self):
        super().__init__(make=Knowing)
        ALL[:] = self.layers

    def forward(self, x):
        for layer in ALL:
            x = layer(x)
        return x


class Enclosed(Stack):
    """Layers in a list that both the layers' class and the frame close over."""

    def __init__(self):
        layers = []

        class Closing(nn.Module):
            def __init__(self, index):
                super().__init__()
                self.inner = Inner()

            def forward(self, x):
                return self.inner(x) * layers[1].inner.first.weight.sum()

        super().__init__(make=Closing)
        layers += self.layers
        self.run = lambda x: functools.reduce(lambda y, layer: layer(y), layers, x)

    def forward(self, x):
        return self.run(x)


class Comparing(nn.Module):
    """Tells apart what it has."""

    def __init__(self, index):
        super().__init__()
        self.inner, self.one, self.other = Inner(), ["a"], ["a"]
        if index == 4:
            self.other = self.one

    def forward(self, x):
        return self.inner(x) + (1 if self.one is self.other else 2)


class Twice(nn.Module):
    """Gives a list twice, or the one that it was given."""

    def __init__(self, index):
        super().__init__()
        self.inner = Inner()

    def forward(self, x, parts):
        made = [self.inner(x)]
        return made, made, parts


class Twins(Stack):
    def __init__(self):
        super().__init__(make=Twice)

    def forward(self, x):
        given = [x]
        for layer in self.layers:
            first, second, parts = layer(x, given)
            second.append(x.sum())
            assert first is second and parts is given
            x = first[0] + first[1]
        return x


class Counting(nn.Module):
    """Effects: on itself, on an argument, on what is global."""

    def __init__(self, index):
        super().__init__()
        self.inner, self.calls, self.index = Inner(), 0, index

    def forward(self, x, log):
        self.calls += 1
        log.append(self.index)
        SEEN.append(self.calls)
        return self.inner(x) + x * self.calls


class Counts(Stack):
    def __init__(self):
        super().__init__(make=Counting)

    def forward(self, x):
        log = []
        for layer in (*self.layers, *self.layers):
            x = layer(x, log)
        return x * len(log)


class Writing(nn.Module):
    """Writes to its argument, to a buffer, and to what it made."""

    def __init__(self, index):
        super().__init__()
        self.inner, self.norm = Inner(), nn.BatchNorm1d(8)
        self.register_buffer("total", torch.zeros(8))

    def forward(self, x):
        y = self.norm(self.inner(x) + x)
        self.total.add_(y.detach().sum(0))
        y.mul_(2)
        return y


class Cast(nn.Module):
    """Enters and leaves modes of torch."""

    def __init__(self, index):
        super().__init__()
        self.inner = Inner()

    def forward(self, x):
        with torch.autocast("cpu", torch.bfloat16):
            y = self.inner(x)
        with torch.no_grad():
            z = x.sin().cos()
        return y.float() + z


class Lazily(nn.Module):
    """Iterates lazily, to the end."""

    def __init__(self, index):
        super().__init__()
        self.inner, self.parts = Inner(), [1.0, 2.0]

    def forward(self, x):
        return self.inner(x) * sum(part for part in self.parts) + max(map(abs, self.parts))


class Globals(Stack):
    """A global that the layers read changes on the way."""

    def forward(self, x):
        global FACTOR
        for index, layer in enumerate(self.layers):
            FACTOR = 2.0 if index < 3 else 3.0
            x = layer(x)
        return x


class Reading(nn.Module):
    def __init__(self, index):
        super().__init__()
        self.inner = Inner()

    def forward(self, x):
        return self.inner(x) * FACTOR + x


class Told(Stack):
    """An attribute of some layers is set on the way."""

    def forward(self, x):
        for index, layer in enumerate(self.layers):
            if index == 4:
                layer.scale = 0.125
            x = layer(x)
        self.layers[4].scale = 0.5
        return x


class Kept(Stack):
    """A tensor that the frame stored is read by layers, from one object that all have."""

    class Holder:
        tensor = None

    def forward(self, x):
        holder = self.holder
        for layer in self.layers:
            holder.tensor = x.cos()
            x = layer(x)
        holder.tensor = None
        return x


class Held(nn.Module):
    def __init__(self, index):
        super().__init__()
        self.inner = Inner()

    def forward(self, x):
        return self.inner(x) + self.holder.tensor


def kept():
    stack = Kept(make=Held)
    stack.holder = Kept.Holder()
    for layer in stack.layers:
        layer.holder = stack.holder
    return stack


STACKS = {
    "arguments by name": (Masked, 4),
    "a list that grows": (Growing, 0),
    "other arguments": (Alternating, 0),
    "autocast": (Modes, None),
    "results of many kinds": (Returns, 4),
    "an argument of one of them": (Weighed, None),
    "a layer by a fixed path": (upward, 0),
    "a layer in a global list": (Known, 0),
    "a layer in a list closed over": (Enclosed, 0),
    "what is one object in one of them": (lambda: Stack(make=Comparing), 3),
    "containers that are one": (Twins, 0),
    "effects": (Counts, 0),
    "writes": (lambda: Stack(make=Writing), 0),
    "modes of its own": (lambda: Stack(make=Cast), 0),
    "generators": (lambda: Stack(make=Lazily), 4),
    "a global in between": (lambda: Globals(make=Reading), None),
    "an attribute in between": (Told, None),
    "a tensor in between": (kept, 0),
}


@pytest.mark.parametrize("name", STACKS)
def test_calls_that_differ_are_traced(name, repeated):
    make, times = STACKS[name]
    SEEN.clear()
    stack = make()
    check(stack, torch.randn(3, 8))
    layers = [module for module in repeated if not isinstance(module, Inner)]
    assert times is None or len(layers) in (times, 2 * times)


def test_one_that_breaks_is_cut_as_ever():
    """Nothing is remembered of what could not be traced to its end."""

    class Breaking(Layer):
        def forward(self, x):
            x = super().forward(x)
            print(end="")
            return x

    check(Stack(make=Breaking), torch.randn(3, 8))
