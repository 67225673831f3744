"""`autograd.Function` and checkpoint: part of the graph, differentiated as the user wrote it."""

from __future__ import annotations

import types

import pytest
import torch
from both_ways import eager
from torch.utils.checkpoint import checkpoint

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


def test_checkpoint_marks_its_nodes(check):
    """Regions inside of a region are part of it; functions after it are not marked."""

    def block(x):
        return checkpoint(torch.sin, x.exp(), use_reentrant=False) + 1

    def run(x):
        y = checkpoint(block, x, use_reentrant=False)
        return checkpoint(block, y, use_reentrant=False) * 2

    (record,) = check(run)
    regions = [node.meta.get("checkpoint") for node in record.graph.graph.nodes if node.op.startswith("call")]
    assert regions == [1, 1, 1, 2, 2, 2, None]


def test_a_checkpoint_of_a_function_by_name_breaks(broken):
    assert broken(lambda x: checkpoint(function=lambda: x.sin(), use_reentrant=False) + 1, torch.ones(3)) == {
        "unsupported-call"
    }


def test_a_checkpoint_with_contexts_of_its_own_breaks(broken):
    """Nobody enters them in the graph."""
    entered = []

    class Counted:
        def __enter__(self):
            entered.append(1)

        def __exit__(self, *error):
            pass

    def run(x):
        return checkpoint(torch.sin, x, use_reentrant=False, context_fn=lambda: (Counted(), Counted())) + 1

    assert broken(run, torch.ones(3, requires_grad=True)) == {"unsupported-call"}
    assert entered


SEEN: list[int] = []
BUFFER = torch.zeros(3)
NORM = torch.nn.BatchNorm1d(3, affine=False)


def _appends(x):
    SEEN.append(1)
    return x.sin()


def _writes(x):
    BUFFER.add_(1)
    return x.sin()


def _writes_its_own(x):
    y = x.sin()
    y.add_(1).mul_(2)
    return y.exp()


def _draws(x):
    return x.sin() + torch.rand_like(x) * 0


def _attends(x):
    rows = x[None, None]
    return torch.nn.functional.scaled_dot_product_attention(rows, rows, rows).exp()


def _normalises(x):
    return NORM(x).sin()


@pytest.mark.parametrize(
    ("function", "own", "breaks"),
    [
        (_appends, {}, True),
        (_writes, {}, True),
        (_writes_its_own, {}, False),
        (_draws, {}, False),
        (_draws, {"preserve_rng_state": False}, True),
        (_attends, {"preserve_rng_state": False}, False),
        (_normalises, {}, True),
        (lambda x: checkpoint(_appends, x, use_reentrant=False).cos(), {}, True),
        (torch.sin, {"use_reentrant": True}, True),
        (torch.sin, {"debug": True}, False),
        (torch.sin, {"determinism_check": "none", "early_stop": False}, False),
    ],
)
def test_a_checkpoint_whose_second_run_is_seen_breaks(broken, function, own, breaks):
    """It draws other numbers, or changes again what is outside of it; not where nothing needs a gradient."""

    def run(x):
        return checkpoint(function, x * 2, **{"use_reentrant": False, **own}) + 1

    assert broken(run, torch.ones(3, 3, requires_grad=True)) == ({"unsupported-call"} if breaks else set())
    if own.get("use_reentrant") is None:
        assert not broken(run, torch.ones(3, 3))


@pytest.mark.parametrize("change", ["attribute", "item"])
def test_a_checkpoint_that_changes_what_the_traced_function_made_breaks(broken, change):
    """Its second run, in the backward, changes it again."""

    def run(x):
        made = types.SimpleNamespace(count=0, items=[])

        def function(x):
            if change == "attribute":
                made.count += 1
            else:
                made.items.append(1)
            return x.sin()

        return checkpoint(function, x * 2, use_reentrant=False) + 1, made

    assert broken(run, torch.ones(3, requires_grad=True)) == {"unsupported-call"}
