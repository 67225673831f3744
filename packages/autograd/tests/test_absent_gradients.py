"""Which gradients there are, as in eager: None, not zeros, for an input that decides only outputs without one; each its own tensor."""

import itertools

import pytest
import torch
from lifting import compile_function, compile_graph, fakes, lift_function, lift_symbolically
from torch.utils import _pytree as pytree

from flambeau_autograd import core_table, prepare
from flambeau_autograd.config import Config
from flambeau_autograd.joint.build import build_joint


def program(a, b, c):
    """c decides nothing that can be differentiated but the last; b decides two of three."""
    first = a * b
    second = (b + 1).sin()
    third = torch.floor(c) * 2
    return first, second, third


def split_and_joined(a, b, c):
    """Views of one result, and a write that joins histories."""
    left, right = (a * 2).split(2)
    whole = torch.zeros(4)
    whole[:2] = b[:2]
    whole[2:] = right
    return left * 1, whole, c.detach() * a[0]


def lists(a, b, c):
    """A list op is one node, each of whose results leads to the members in its place alone."""
    first, second = torch._foreach_mul([a, b], [c, a])
    third, fourth = torch._foreach_add(torch._foreach_neg([a, b]), [c, first])
    return second * 1, third, torch._foreach_lerp([fourth, b], [a, c], 0.5)[1]


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("function", [program, split_and_joined, lists])
@pytest.mark.parametrize("used", [u for n in (1, 2, 3) for u in itertools.combinations(range(3), n)])
def test_gradients_are_there_where_eager_has_them(function, used, native):
    found = []
    seed = [torch.randn(4) for _ in range(3)]
    compiled = compile_function(function, [t.clone().requires_grad_() for t in seed], config=Config(native=native))
    for run in (function, compiled):
        inputs = [t.clone().requires_grad_() for t in seed]
        outputs = run(*inputs)
        loss = sum(outputs[i].sum() for i in used)
        found.append(torch.autograd.grad(loss, inputs, allow_unused=True, retain_graph=True))
    for theirs, ours in zip(*found):
        assert (theirs is None) == (ours is None)
        if theirs is not None:
            torch.testing.assert_close(ours, theirs)
    if used == (0,) and function is not lists:
        assert any(grad is None for grad in found[1])


def infinite(a, b, c):
    """Of zeros: what comes of no gradient is nan if it is computed from zeros."""
    first = a.log() * b
    second = (a * 2 + b).exp()
    return first, second, torch.sqrt(a) + c + second


def chained(a, b, c):
    """A sum of three, where two come of the same result."""
    root = (a * b).sqrt()
    return root.sum(0), root.log() * root, a.reciprocal() * c + root


def steps(a, b, c):
    """Gradients of zeros, whatever comes in."""
    return a.sgn() + b.floor(), a.sqrt() + b.ceil() + c, (b * 0).log().round() + c


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("function", [infinite, chained, steps])
@pytest.mark.parametrize("used", [u for n in (1, 2, 3) for u in itertools.combinations(range(3), n)])
def test_nothing_comes_of_a_result_without_a_gradient(function, used, again, native):
    """As in eager; an absent gradient is no gradient of zeros. `again`: what comes may be differentiated."""
    seed = [torch.tensor([0.0, 1.0, 0.0, 4.0]), torch.tensor([1.0, 0.0, -2.0, 3.0]), torch.ones(4)]
    found = []
    compiled = compile_function(function, [t.clone().requires_grad_() for t in seed], config=Config(native=native))
    for run in (function, compiled):
        inputs = [t.clone().requires_grad_() for t in seed]
        outputs = run(*inputs)
        tangents = [torch.ones_like(outputs[i]) for i in used]
        found.append(
            torch.autograd.grad([outputs[i] for i in used], inputs, tangents, allow_unused=True, create_graph=again)
        )
    for theirs, ours in zip(*found):
        torch.testing.assert_close(ours, theirs, equal_nan=True)


def test_only_sums_of_what_comes_of_several_results_ask_for_flags():
    x = torch.randn(4, requires_grad=True)
    flags = []
    for function in (lambda x: (x.sin() + x.cos() * x,), lambda x: (x.sin(), x.exp() + x)):
        flags.append(prepare(lift_function(function, [x]), fakes([x])).signature.flagged)
    assert [sorted(places) for places in flags] == [[], [(0,), (1,)]]


def test_a_size_of_a_tangent_is_known_without_its_gradient():
    """The sum over a broadcast dimension is laid out in sizes, which are read from a tangent that may be the absent one."""

    def function(x):
        flat = x.view(-1)
        return torch.cummax(flat, 0)[0], torch.hypot(flat[:1], x)

    x = torch.zeros(3, 5, requires_grad=True)
    first, _ = compile_graph(lift_symbolically(function), [x], dynamic=True)(x)
    first.sum().backward()
    torch.testing.assert_close(x.grad, torch.ones(3, 5))


@pytest.mark.parametrize("reduce", [torch.max, torch.min, torch.median, torch.amax, torch.nanmedian])
@pytest.mark.parametrize("share", [1.0, torch.inf, torch.nan])
@pytest.mark.parametrize("value", [1.0, torch.nan])
def test_what_is_not_the_greatest_gets_zeros(reduce, share, value):
    """Also where the greatest get what is no number."""
    found = []
    seed = torch.tensor([[1.0, value, 1.0], [0.0, 1.0, value]]).t()
    compiled = compile_function(reduce, [seed.clone().requires_grad_()])
    for run in (reduce, compiled):
        x = seed.clone().requires_grad_()
        (result,) = pytree.tree_leaves(run(x))
        found += torch.autograd.grad(result, x, torch.tensor(share))
    torch.testing.assert_close(found[1], found[0], equal_nan=True, rtol=0, atol=0)
    assert found[0].stride() == found[1].stride()


def equal_terms(a, b):
    return (a * 2 + b * 2).sum()


def rounded(a, b):
    return torch.div(a, b, rounding_mode="floor")


def plus_nothing(a, b):
    return (a * 1) + b


def sum_of_both(a, b):
    return a + b


@pytest.mark.parametrize("function", [equal_terms, rounded, plus_nothing, sum_of_both])
def test_gradients_share_memory_where_eager_shares_it(function):
    """Equal gradients are computed once, and are two tensors nevertheless: a program may write to one of them."""
    shared = []
    inputs = [torch.randn(4, requires_grad=True) for _ in range(2)]
    compiled = compile_function(function, [t.detach().clone().requires_grad_() for t in inputs])
    for run in (function, compiled):
        (result,) = pytree.tree_leaves(run(*inputs))
        tangent = torch.ones_like(result)
        a, b = torch.autograd.grad(result, inputs, tangent)
        pointers = [t.untyped_storage().data_ptr() for t in (a, b, tangent)]
        shared.append([pointers[i] == pointers[j] for i, j in ((0, 1), (0, 2), (1, 2))])
    assert shared[0] == shared[1]


@pytest.mark.parametrize("inner", [torch.rsqrt, torch.log, torch.square, torch.reciprocal, torch.neg, torch.exp])
def test_products_of_zeros_without_memory_are_zeros(inner):
    """Of infinity too, where torch multiplies without looking at memory; the gradient of an input has memory."""
    x = torch.tensor([0.0, 1.0, 2.0], requires_grad=True)
    for function in (lambda x: (x.sgn() * 1,), lambda x: (inner(x).sgn(),), lambda x: ((inner(x).T + 1).sgn() * 2,)):
        got, want = (torch.autograd.grad(run(x)[0].sum(), x)[0] for run in (compile_function(function, [x]), function))
        torch.testing.assert_close(got, want, equal_nan=True)
        assert not got._is_zerotensor()


@pytest.mark.parametrize("used", [(0,), (1,), (0, 1)])
def test_a_sum_with_zeros_without_memory(used):
    """It is its other side; and where that comes of a result without a gradient, zeros, though the formula makes nan of zeros."""

    def function(x):
        y = x * 2
        return y.sqrt(), y.sgn().T

    x = torch.tensor([[0.0, 1.0], [4.0, 9.0]], requires_grad=True)
    compiled = compile_function(function, [x])
    grads = []
    for run in (compiled, function):
        results = run(x)
        grads.append(torch.autograd.grad(sum(results[i].sum() for i in used), x)[0])
    torch.testing.assert_close(*grads)


def test_no_leaf_is_viewed_to_find_its_place_in_the_history(monkeypatch):
    """A call on fakes for each parameter would be most of what looking at the history of a large model costs."""
    viewed = []
    view_as = torch.Tensor.view_as
    monkeypatch.setattr(torch.Tensor, "view_as", lambda own, other: viewed.append(own) or view_as(own, other))
    values = [torch.randn(4, requires_grad=True) for _ in range(3)]
    joint = build_joint(lift_function(program, values), fakes(values), core_table(), Config())
    assert len(joint.reached_by) == len(joint.grads) == 3
    assert not viewed
