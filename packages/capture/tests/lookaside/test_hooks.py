"""Hooks that a frame registers on tensors: nested graphs for what it computes, the call itself for leaves from outside."""

from __future__ import annotations

import pytest
import torch
from both_ways import assert_equal, eager, outcome

from flambeau_capture import make_region

_SCALE = torch.tensor([1.0, 2.0, 3.0])


def _on_sine(hook, after=lambda y: (y * y, y)):
    def run(x):
        y = x.sin()
        y.register_hook(hook)
        return after(y)

    return run


def _uses_the_result(x):
    y = x.sin()
    y.register_hook(lambda g: g * y + _SCALE * g.abs())
    return y.exp(), y


def _after_a_use(x):
    y = x.sin()
    z = y.exp()
    y.register_hook(lambda g: g * 3)
    return z, y


def _before_a_write(x):
    y = x.sin()
    y.register_hook(lambda g: g * 3)
    y.mul_(2)
    return y * 2, y


def _inside(x):
    y = x.sin()
    y.register_hook(lambda g: g * 3)
    return torch.autograd.grad((y**3).sum(), x, create_graph=True)[0], y


def _doubled(leaf):
    leaf.grad.mul_(2)


_PROGRAMS = {
    "scaled": _on_sine(lambda g: g * 2),
    "another tensor": _on_sine(lambda g: _SCALE),
    "nothing": _on_sine(lambda g: None),
    "not zero for zero": _on_sine(lambda g: g + 1, lambda y: (y * y, y.detach() * 3)),
    "the result in it": _uses_the_result,
    "after a use": _after_a_use,
    "before a write": _before_a_write,
    "a backward inside": _inside,
    "of a leaf": lambda x: (x.register_hook(lambda g: g.clamp(-1, 1)), x * 5, x + 1)[1:],
    "behind a leaf": lambda x: (x.register_post_accumulate_grad_hook(_doubled), x * 5, x + 1)[1:],
}


def _gradients(call):
    seen = []
    for number in range(3):
        x = torch.linspace(-1, 1.5 + number, 3).requires_grad_()
        for result in call(x):
            if result.requires_grad:
                result.sum().backward(retain_graph=True)
            seen.append((result.detach(), None if x.grad is None else x.grad.detach().clone()))
    return seen


@pytest.mark.parametrize("name", _PROGRAMS)
def test_a_hook_is_part_of_the_graph(name):
    """Each gradient that comes to the tensor is what the hook makes of it, and none where none comes."""
    function = _PROGRAMS[name]
    assert_equal(_gradients(make_region(function, eager, fullgraph=True)), _gradients(function))


@pytest.mark.parametrize(
    "hook",
    [lambda g: g.mul_(2), lambda g: g.double(), lambda g: g[0], lambda g: 1, lambda g: g + g.grad, 3, lambda: None],
)
def test_other_hooks_are_left_to_eager(hook):
    """What a graph does not hold runs in plain Python, and raises what it raises."""
    function = _on_sine(hook)
    assert_equal(
        outcome(_gradients, make_region(function, eager))[0],
        outcome(_gradients, function)[0],
    )


def test_a_hook_with_effects_runs_when_a_gradient_comes(broken):
    """Not when it is traced."""
    seen = []
    region = make_region(_on_sine(seen.append), eager)
    x = torch.ones(3, requires_grad=True)
    result, _ = region(x)
    assert not seen
    result.sum().backward()
    assert len(seen) == 1
    assert broken(_on_sine(seen.append), torch.ones(3)) != set()


def test_what_a_hook_reads_is_guarded():
    """A number that it closes over may be another in the next call."""
    factor = [2.0]
    region = make_region(_on_sine(lambda g: g * factor[0]), eager, fullgraph=True)
    for factor[0] in (2.0, 3.0):
        x = torch.ones(3, requires_grad=True)
        region(x)[0].sum().backward()
        torch.testing.assert_close(x.grad, factor[0] * 2 * x.detach().sin() * x.detach().cos())


def test_a_backward_sees_the_hook_of_its_leaf():
    """The frame that registers it and comes to it leaves that to the engine."""

    def run(x):
        x.register_hook(lambda g: g * 2)
        x.sin().sum().backward()

    region = make_region(run, eager)
    for _ in range(2):
        leaves = [torch.ones(3, requires_grad=True) for _ in range(2)]
        region(leaves[0])
        run(leaves[1])
        assert_equal(leaves[0].grad, leaves[1].grad)


def test_a_handle_takes_the_hook_away():
    """A program that keeps it runs in plain Python."""

    def run(x):
        y = x.sin()
        handle = y.register_hook(lambda g: g * 2)
        z = y * y
        handle.remove()
        return z, y

    assert_equal(_gradients(make_region(run, eager)), _gradients(run))


def _rebound(x):
    factor = 2.0
    y = x.sin()
    y.register_hook(lambda g: g * factor)
    factor = 3.0
    return y * y, y


def _refilled(x):
    factors = [2.0]
    y = x.sin()
    y.register_hook(lambda g: g * factors[0])
    factors[0] = 3.0
    return y * y, y


def _stored(x):
    y = x.sin()
    y.register_hook(lambda g: g * _STORE.factor)
    _STORE.factor = 3.0
    return y * y, y


class _STORE:
    factor = 2.0


@pytest.mark.parametrize("function", [_rebound, _refilled, _stored])
def test_a_hook_reads_what_is_there_when_a_gradient_comes(function):
    """What the frame changes after it registered the hook counts."""
    seen = []
    for call in (function, make_region(function, eager)):
        _STORE.factor = 2.0
        seen.append(_gradients(call))
    assert_equal(*seen)


def test_a_variable_that_stays(check):
    """Variables that are bound before, and not again, are what they were."""

    def run(x):
        factor, others = 2.0, [3.0]
        y = x.sin().requires_grad_()
        y.register_hook(lambda g: g * factor + others[0])
        later = [y]
        return torch.autograd.grad((later[0] * y).sum(), y)

    check(run)
