"""Stacks of layers for `test_repeated_calls.py`: layers whose code reads state of many kinds, and stacks that call them in many ways."""

from __future__ import annotations

import functools
from contextlib import nullcontext

import torch
from torch import nn

LAYERS = 6
SEEN = []
ALL = []
FACTOR = 2.0


class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 8)
        self.drop = nn.Dropout(0.3)

    def forward(self, x):
        return self.drop(self.second(torch.relu(self.first(x))))


class Small(nn.Module):
    """What all layers have."""

    def __init__(self, index):
        super().__init__()
        self.index, self.inner = index, Inner()


class Layer(Small):
    """A layer with state of many kinds, most of which its code reads."""

    def __init__(self, index):
        super().__init__(index)
        self.scale, self.name, self.flags = 0.5, "layer", {"add": True}
        self.norm = nn.LayerNorm(8)
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

    make = Layer

    def __init__(self, change=lambda layers: None):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(self.make(index) for index in range(LAYERS))
        change(self.layers)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


# one layer is another


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


# arguments and results


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


class Returning(Small):
    """Gives an argument, a parameter, several tensors, containers, nothing."""

    def forward(self, x, state):
        y = self.inner(x) + x
        parts = y.chunk(2, -1)
        return {"y": y, "x": x, "parts": [parts[0], (parts[1], None)]}, self.inner.first.bias, state, 3


class Returns(Stack):
    make = Returning

    def forward(self, x):
        results, state = [], x.sum()
        for layer in self.layers:
            found, bias, state, number = layer(x, state)
            assert found["x"] is x
            x = found["y"] * number + bias.sum() + found["parts"][1][0].sum()
            results.append(found)
        return results, state


class Twice(Small):
    """Gives a list twice, and the one that it was given."""

    def forward(self, x, parts):
        made = [self.inner(x)]
        return made, made, parts


class Twins(Stack):
    make = Twice

    def forward(self, x):
        given = [x]
        for layer in self.layers:
            first, second, parts = layer(x, given)
            second.append(x.sum())
            assert first is second and parts is given
            x = first[0] + first[1]
        return x


class Weighing(Small):
    """Takes a weight as well, which may be its own."""

    def forward(self, x, weight):
        return self.inner(x) * weight.sum() + self.inner.first.weight.mean()


class Weighed(Stack):
    """All get the weight of the second layer, which is not remembered: the third is."""

    make = Weighing

    def forward(self, x):
        for layer in self.layers:
            x = layer(x, self.layers[1].inner.first.weight)
        return x


# paths to one layer from elsewhere


class Upward(Small):
    """Knows the stack that it is in, and asks the second layer there."""

    def __init__(self, index):
        super().__init__(index)
        self.up = []

    def forward(self, x):
        second = self.up[0].layers[1]
        y = self.inner(x) * second.inner.first.weight.sum()
        return y + 1 if second is self else y


class Upwards(Stack):
    make = Upward

    def __init__(self):
        super().__init__(lambda layers: [layer.up.append(self) for layer in layers])


class Knowing(Small):
    """Asks for the second of all layers, by a name of the module that this file is."""

    def forward(self, x):
        return self.inner(x) * ALL[1].inner.first.weight.sum()


class Known(Stack):
    """Layers in a list that is global."""

    make = Knowing

    def __init__(self):
        super().__init__()
        ALL[:] = self.layers

    def forward(self, x):
        for layer in ALL:
            x = layer(x)
        return x


class Enclosed(Stack):
    """Layers in a list that both the layers' class and the frame close over."""

    def __init__(self):
        layers = []

        class Closing(Small):
            def forward(self, x):
                return self.inner(x) * layers[1].inner.first.weight.sum()

        self.make = Closing
        super().__init__()
        layers += self.layers
        self.run = lambda x: functools.reduce(lambda y, layer: layer(y), layers, x)

    def forward(self, x):
        return self.run(x)


class Comparing(Small):
    """Tells apart what it has."""

    def __init__(self, index):
        super().__init__(index)
        self.one, self.other = ["a"], ["a"]
        if index == 4:
            self.other = self.one

    def forward(self, x):
        return self.inner(x) + (1 if self.one is self.other else 2)


class Compared(Stack):
    make = Comparing


# effects, and what changes between the calls


class Counting(Small):
    """Effects: on itself, on an argument, on what is global."""

    def __init__(self, index):
        super().__init__(index)
        self.calls = 0

    def forward(self, x, log):
        self.calls += 1
        log.append(self.index)
        SEEN.append(self.calls)
        return self.inner(x) + x * self.calls


class Counts(Stack):
    make = Counting

    def forward(self, x):
        log = []
        for layer in (*self.layers, *self.layers):
            x = layer(x, log)
        return x * len(log)


class Writing(Small):
    """Writes to a buffer, to statistics, and to what it made."""

    def __init__(self, index):
        super().__init__(index)
        self.norm = nn.BatchNorm1d(8)
        self.register_buffer("total", torch.zeros(8))

    def forward(self, x):
        y = self.norm(self.inner(x) + x)
        self.total.add_(y.detach().sum(0))
        y.mul_(2)
        return y


class Writes(Stack):
    make = Writing


class Casting(Small):
    """Enters and leaves modes of torch."""

    def forward(self, x):
        with torch.autocast("cpu", torch.bfloat16):
            y = self.inner(x)
        with torch.no_grad():
            z = x.sin().cos()
        return y.float() + z


class Casts(Stack):
    make = Casting


class Lazily(Small):
    """Iterates lazily, to the end."""

    def __init__(self, index):
        super().__init__(index)
        self.parts = [1.0, 2.0]

    def forward(self, x):
        return self.inner(x) * sum(part for part in self.parts) + max(map(abs, self.parts))


class Iterates(Stack):
    make = Lazily


class Modes(Stack):
    """Autocast around some of the calls."""

    def forward(self, x):
        for index, layer in enumerate(self.layers):
            with torch.autocast("cpu", torch.bfloat16) if index in (3, 4) else nullcontext():
                x = layer(x).float()
        return x


class Reading(Small):
    def forward(self, x):
        return self.inner(x) * FACTOR + x


class Globals(Stack):
    """A global that the layers read changes on the way."""

    make = Reading

    def forward(self, x):
        global FACTOR
        for index, layer in enumerate(self.layers):
            FACTOR = 2.0 if index < 3 else 3.0
            x = layer(x)
        return x


class Told(Stack):
    """An attribute of one layer is set on the way."""

    def forward(self, x):
        for index, layer in enumerate(self.layers):
            if index == 4:
                layer.scale = 0.125
            x = layer(x)
        self.layers[4].scale = 0.5
        return x


class Holder:
    content = None


class Held(Stack):
    """One object that all layers have."""

    def __init__(self):
        super().__init__()
        self.holder = Holder()
        for layer in self.layers:
            layer.holder = self.holder


class HoldingTensor(Small):
    def forward(self, x):
        return self.inner(x) + self.holder.content


class HeldTensor(Held):
    """A tensor that the frame puts there anew for each call."""

    make = HoldingTensor

    def forward(self, x):
        for layer in self.layers:
            self.holder.content = x.cos()
            x = layer(x)
        self.holder.content = None
        return x


class HoldingObject(Small):
    def forward(self, x):
        return self.inner(x) * self.holder.content.number


class HeldObject(Held):
    """An object that the frame made, put there and goes on to change."""

    make = HoldingObject

    def forward(self, x):
        self.holder.content = step = Holder()
        for number, layer in enumerate(self.layers):
            step.number = number + 1
            x = layer(x)
        self.holder.content = None
        return x


class HoldingList(Small):
    def forward(self, x):
        return self.inner(x) * self.holder.content[0][-1]


class HeldList(Held):
    """A list within a list, likewise."""

    make = HoldingList

    def forward(self, x):
        self.holder.content = [inner := []]
        for number, layer in enumerate(self.layers):
            inner.append(number + 1)
            x = layer(x)
        self.holder.content = None
        return x


class HeldUnchanged(Held):
    """A list that stays as it is."""

    make = HoldingList

    def forward(self, x):
        self.holder.content = [[3]]
        x = super().forward(x)
        self.holder.content = None
        return x


class Scaling(Small):
    """Asks whether a buffer requires grad."""

    def __init__(self, index):
        super().__init__(index)
        self.register_buffer("scale", torch.ones(8))

    def forward(self, x):
        y = self.inner(x) * self.scale
        return y + 1 if self.scale.requires_grad else y * 2


class Scales(Stack):
    """The frame writes to the buffer of one layer before that is called."""

    make = Scaling

    def forward(self, x):
        for index, layer in enumerate(self.layers):
            if index == 4:
                layer.scale.mul_(x.mean())
            x = layer(x)
        return x


class ScalingAlike(Small):
    def forward(self, x):
        y = self.inner(x) + self.common[0]
        return y + 1 if self.common[0].requires_grad else y * 2


class ScalesAlike(Stack):
    """The frame writes to a tensor that all layers have, on the way."""

    make = ScalingAlike

    def __init__(self):
        super().__init__()
        self.common = [torch.ones(8)]
        for layer in self.layers:
            layer.common = self.common

    def forward(self, x):
        for index, layer in enumerate(self.layers):
            if index == 4:
                self.common[0].mul_(x.mean())
            x = layer(x)
        return x


KEEP_HISTORY = ("a buffer that is written before", "a tensor that is written in between")
"""Of which a second backward would go through the first one's graph, in plain Python as well."""

#: What the calls are like -> the stack, and how many layers are recorded again in a trace.
STACKS = {
    "arguments by name": (Masked, 4),
    "a list that grows": (Growing, 0),
    "other arguments": (Alternating, 0),
    "results of many kinds": (Returns, 4),
    "containers that are one": (Twins, 0),
    "an argument of one of them": (Weighed, 3),
    "a layer by a fixed path": (Upwards, 0),
    "a layer in a global list": (Known, 0),
    "a layer in a list closed over": (Enclosed, 0),
    "what is one object in one of them": (Compared, 3),
    "effects": (Counts, 0),
    "writes": (Writes, 0),
    "modes of their own": (Casts, 0),
    "generators": (Iterates, 4),
    "autocast": (Modes, 2),
    "a global in between": (Globals, 0),
    "an attribute in between": (Told, 2),
    "a tensor in between": (HeldTensor, 0),
    "an object that changes in between": (HeldObject, 0),
    "a list that changes in between": (HeldList, 0),
    "a list that does not": (HeldUnchanged, 4),
    "a buffer that is written before": (Scales, 3),
    "a tensor that is written in between": (ScalesAlike, 3),
}
