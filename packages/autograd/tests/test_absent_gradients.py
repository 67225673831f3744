"""An input that decides only outputs without a gradient has none itself, as in eager: None, not zeros."""

import itertools

import pytest
import torch
from lifting import compile_function

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
