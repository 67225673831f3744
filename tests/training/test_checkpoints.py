"""A compiled module inside of a checkpoint: its forward is repeated for the backward, and ended by a hook on saved tensors once that has all it needs.
A checkpoint inside of a compiled function: what a second run would show is seen."""

from __future__ import annotations

import functools
import inspect
import warnings

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import flambeau

from ..comparison import assert_same


class Counting(nn.Module):
    """A change that is made after the graph has run."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return self.inner(x).tanh()


class Handling(Counting):
    """A handler of the program that covers the graph."""

    def forward(self, x):
        try:
            return self.inner(x).tanh()
        except ValueError:
            return x


BLOCKS = {
    "dropout": lambda: nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.3), nn.GELU()),
    "statistics": lambda: nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 4)),
    "an effect": Counting,
    "a handler": Handling,
}


@pytest.mark.parametrize("backend", ["inductor", "aot_eager", "eager"])
@pytest.mark.parametrize("early", [True, False], ids=["early stop", "to the end"])
@pytest.mark.parametrize("block", BLOCKS)
def test_a_checkpoint_around_a_compiled_module(block, early, backend):
    """Results, gradients and the module afterwards are as of the module that is not compiled, in both passes of two steps."""
    seen = []
    for compiled in (False, True):
        torch.manual_seed(0)
        module = BLOCKS[block]()
        call = flambeau.compile(module, backend=backend) if compiled else module
        steps = []
        for _ in range(2):
            x = torch.rand(3, 4, requires_grad=True)
            with torch.utils.checkpoint.set_checkpoint_early_stop(early):
                result = checkpoint(call, x, use_reentrant=False)
                result.sum().backward()
            steps.append((result, x.grad))
        gradients = [parameter.grad for parameter in module.parameters()]
        steps.append((gradients, list(module.state_dict().values()), getattr(module, "calls", None)))
        seen.append(steps)
    assert_same(seen[1], seen[0])


class Full(Exception):
    pass


@pytest.mark.parametrize("backend", ["inductor", "aot_eager", "eager"])
def test_what_a_hook_on_saved_tensors_raises(backend):
    """It is the program's exception: no graph is run again for it, and the hook is called no second time."""
    calls = []

    def pack(tensor):
        calls.append(1)
        raise Full("no room")

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor), pytest.raises(Full, match="no room"):
        flambeau.compile(lambda x: x.exp() + 1, backend=backend)(torch.ones(3, requires_grad=True))
    assert len(calls) == 1


def _drops(x):
    return torch.nn.functional.dropout(x.sin().exp(), 0.5).cos()


def _smooth(x):
    return x.sin().exp().cos()


LOG: list[int] = []


def _logs(x):
    LOG.append(1)
    return x.sin().exp().cos()


#: Function and arguments of the checkpoint. What a second run would show leaves the checkpoint to torch.
INSIDE = {
    "plain": (_smooth, {"use_reentrant": False}),
    "its state of the generator": (_drops, {"use_reentrant": False}),
    "other draws": (_drops, {"use_reentrant": False, "preserve_rng_state": False}),
    "no draws": (_smooth, {"use_reentrant": False, "preserve_rng_state": False}),
    "reentrant": (_drops, {"use_reentrant": True}),
    "other draws, reentrant": (_drops, {"use_reentrant": True, "preserve_rng_state": False}),
    "an effect": (_logs, {"use_reentrant": False}),
    "to the end": (_logs, {"use_reentrant": False, "early_stop": False}),
}


DECORATES = inspect.signature(checkpoint).parameters["function"].default is None
"""Whether this torch has `checkpoint` in the form of a decorator."""


@pytest.mark.parametrize(
    "way", ["call", pytest.param("decorator", marks=pytest.mark.skipif(not DECORATES, reason="torch 2.15"))]
)
@pytest.mark.parametrize("name", INSIDE)
def test_a_checkpoint_inside_of_a_compiled_function(name, way):
    """The second run for the backward draws again, or changes things again, where it does so in eager."""
    function, arguments = INSIDE[name]
    if way == "decorator":
        checkpointed = checkpoint(**arguments)(function)
    else:
        checkpointed = functools.partial(checkpoint, function, **arguments)
    seen = []
    for compiled in (False, True):

        def step(x):
            return checkpointed(x * 2) + 1

        call = flambeau.compile(step) if compiled else step
        torch.manual_seed(0)
        LOG.clear()
        steps = []
        for _ in range(2):
            x = torch.rand(6, requires_grad=True)
            result = call(x)
            result.sum().backward()
            steps.append((result, x.grad, torch.rand(2), len(LOG)))
        seen.append(steps)
    assert_same(seen[1], seen[0])


class Box:
    def __init__(self):
        self.rows = []


def _appends(x):
    seen = []
    return checkpoint(lambda v: (seen.append(1), v.sin().exp())[1], x, use_reentrant=False), seen


def _counts(x):
    count = 0

    def smooth(v):
        nonlocal count
        count += 1
        return v.sin().exp()

    return checkpoint(smooth, x, use_reentrant=False), lambda: count


def _stores(x):
    box, table = Box(), {}
    box.rows = [table]

    def smooth(v, box):
        box.rows[0][len(table)] = 1
        box.last = len(table)
        return v.sin().exp()

    return checkpoint(smooth, x, box, use_reentrant=False), box


def _takes(x):
    rest = iter([1, 2, 3])
    return checkpoint(lambda v: v.sin() * next(rest), x, use_reentrant=False), rest


def _keeps_its_own(x):
    def smooth(v):
        mine = []
        mine.append(v.sin())
        return mine[0].exp()

    return checkpoint(smooth, x, use_reentrant=False), []


@pytest.mark.parametrize(
    ("function", "breaks"),
    [(_appends, True), (_counts, True), (_stores, True), (_takes, True), (_keeps_its_own, False)],
)
def test_objects_of_the_compiled_function_that_a_checkpoint_changes(function, breaks):
    """The second run changes them again; what the checkpointed function makes itself is new then."""
    told = []
    for compiled in (False, True):

        def whole(x):
            return function(x * 2)

        call = flambeau.compile(whole) if compiled else whole
        x = torch.linspace(0, 1, 6).requires_grad_()
        result, changed = call(x)
        result.sum().backward()
        state = changed() if callable(changed) else getattr(changed, "__dict__", None) or list(changed)
        told.append((result, x.grad, state))
    assert_same(told[1][:2], told[0][:2])
    assert told[1][2] == told[0][2]
    explained = flambeau.explain(whole)(torch.ones(6, requires_grad=True))
    assert bool(explained.breaks) == breaks


@pytest.mark.parametrize("training", [True, False])
def test_statistics_inside_of_a_checkpoint(training):
    """The second run writes them again."""
    seen = []
    for compiled in (False, True):
        torch.manual_seed(0)
        norm = nn.BatchNorm1d(4).train(training)

        def step(x, norm):
            return checkpoint(lambda x: norm(x.exp()).sin(), x * 2, use_reentrant=False) + 1

        call = flambeau.compile(step) if compiled else step
        x = torch.rand(3, 4, requires_grad=True)
        call(x, norm).sum().backward()
        seen.append((x.grad, list(norm.state_dict().values())))
    assert_same(seen[1], seen[0])


@pytest.mark.parametrize("call", ["parameters", "warning"])
def test_what_a_reentrant_checkpoint_refuses(call):
    """Gradients of parameters alone, with a warning; to be the default without a word."""
    layer = nn.Linear(4, 4)

    def step(x):
        own = {} if call == "warning" else {"use_reentrant": True}
        return checkpoint(lambda x: layer(x).sin(), x * 2, **own) + 1

    seen = []
    for run in (step, flambeau.compile(step)):
        x = torch.ones(3, 4, requires_grad=call != "parameters")
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            result = run(x)
        seen.append((result.requires_grad, [(str(w.message), w.filename, w.lineno) for w in told]))
    assert seen[1] == seen[0]
