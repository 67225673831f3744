"""Activation checkpoints: traced in place, with marks for what is computed again."""

from __future__ import annotations

import types
from functools import partial

import pytest
import torch
from both_ways import assert_equal, eager
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from flambeau_capture import GraphBreakError, make_region


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
        (torch.sin, {"debug": True}, False),
        (torch.sin, {"determinism_check": "none", "early_stop": False}, False),
    ],
)
def test_a_checkpoint_whose_second_run_is_seen_breaks(broken, function, own, breaks):
    """It draws other numbers, or changes again what is outside of it; not where nothing needs a gradient."""

    def run(x):
        return checkpoint(function, x * 2, **{"use_reentrant": False, **own}) + 1

    assert broken(run, torch.ones(3, 3, requires_grad=True)) == ({"unsupported-call"} if breaks else set())
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


def _saves_sines(context, operator, *args, **kwargs):
    return CheckpointPolicy.MUST_SAVE if operator is torch.ops.aten.sin.default else CheckpointPolicy.PREFER_RECOMPUTE


@pytest.mark.parametrize("chosen", [_saves_sines, [torch.ops.aten.sin.default]])
def test_what_is_saved_is_told_to_the_partitioner(check, chosen):
    """By the function or the operators that the program gives."""

    def run(x):
        contexts = partial(create_selective_checkpoint_contexts, chosen)
        return checkpoint(lambda y: y.sin().exp(), x, use_reentrant=False, context_fn=contexts) + 1

    (record,) = check(run, torch.ones(3, requires_grad=True))
    policies = [node.meta.get("policy") for node in record.graph.graph.nodes if node.op.startswith("call")]
    known = tuple(chosen) if isinstance(chosen, list) else chosen
    assert policies == [known, known, None]


def test_policies_that_are_not_known_break(broken):
    """One that is made in another way, and operators that torch refuses."""

    def by_lambda(x):
        return (
            checkpoint(
                torch.sin, x, use_reentrant=False, context_fn=lambda: create_selective_checkpoint_contexts(_saves_sines)
            )
            + 1
        )

    def packets(x):
        contexts = partial(create_selective_checkpoint_contexts, [torch.ops.aten.sin])
        return checkpoint(torch.sin, x, use_reentrant=False, context_fn=contexts) + 1

    assert broken(by_lambda, torch.ones(3, requires_grad=True)) == {"unsupported-call"}
    with pytest.raises(GraphBreakError):
        make_region(packets, eager, fullgraph=True)(torch.ones(3, requires_grad=True))


W = torch.full((3,), 2.0, requires_grad=True)


def _gradients(function):
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    torch.manual_seed(0)
    result = function(x)
    W.grad = None
    sum(part.sum() for part in (result if isinstance(result, tuple) else [result])).backward()
    return result, x.grad, W.grad


@pytest.mark.parametrize(
    "function",
    [
        lambda y: (y * W).sin(),
        lambda y: (y.sin(), y * W),
        lambda y: torch.dropout(y * W, 0.5, train=True),
        lambda y: checkpoint(lambda z: z.cos() * W, y * 2, use_reentrant=True).exp(),
    ],
)
def test_reentrant_checkpoints_are_one_graph(function):
    """Where their arguments require grad."""

    def run(x):
        return checkpoint(function, x, use_reentrant=True)

    for found, expected in zip(_gradients(make_region(run, eager, fullgraph=True)), _gradients(run), strict=True):
        assert_equal(found, expected)


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (lambda y: y, {}),
        (lambda y: y[:2], {}),
        (lambda y: {"a": y.sin()}, {}),
        (lambda y: (y.sin(), torch.ones(3)), {}),
        (lambda y: y.sin() if torch.is_grad_enabled() else y.cos(), {}),
        (lambda y: y.sin() if y.sin().requires_grad else y.cos(), {}),
        (lambda y: y.sin(), {"determinism_check": "none"}),
    ],
)
def test_reentrant_checkpoints_that_show_their_first_run_break(function, arguments):
    """It has no gradients, and makes new tensors of what is returned."""

    def run(x):
        return checkpoint(function, x, use_reentrant=True, **arguments)

    with pytest.raises(GraphBreakError):
        make_region(run, eager, fullgraph=True)(torch.ones(3, requires_grad=True))
    with pytest.raises(GraphBreakError):
        make_region(run, eager, fullgraph=True)(torch.ones(3))
