"""Which gradients there are, as in eager: None, not zeros, for an input that decides only outputs without one; each its own tensor."""

import itertools

import pytest
import torch
from lifting import compile_function
from torch.utils import _pytree as pytree

from flambeau_autograd.config import Config


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


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("function", [program, split_and_joined])
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
    if used == (0,):
        assert any(grad is None for grad in found[1])


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
