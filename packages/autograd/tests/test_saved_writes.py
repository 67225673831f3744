"""Writes between forward and backward, and second backwards: an error exactly where eager has one, eager's gradients elsewhere."""

import itertools

import pytest
import torch
from lifting import compile_function

from flambeau_autograd import Config


def recomputed(a, b):
    """What the backward needs can be computed again from inputs that eager does not save."""
    return (a * 2 + 1).sin(), torch.hypot(a * 0 + 1, b), a + b


def by_metadata(a, b):
    """Indices that only the shape of an input decides."""
    return (
        a.scatter_add(0, torch.zeros_like(a, dtype=torch.int64), b),
        b[torch.ones_like(b, dtype=torch.int64)],
        a.relu(),
    )


def in_turn(a, b):
    """An input that eager saves for one result only."""
    return a * b, (a * 2).exp().sqrt(), b * 3


def of_results(a, b):
    """A result that another result is computed from, once saved by eager and once not."""
    first, second = a.sigmoid(), b + 1
    return first, (second * 2).cos(), second


def through_views(a, b):
    """What an operator saved of a view that it wrote is part of a result."""
    first, second = a * 2, b * 3
    first[:2].exp_()
    second.view(2, 2).sigmoid_()
    return first, second, first + second


FUNCTIONS = (recomputed, by_metadata, in_turn, of_results, through_views)
SUBSETS = [used for count in (1, 2, 3) for used in itertools.combinations(range(3), count)]


@pytest.fixture(params=[True, False], ids=["native", "twin"])
def native(request):
    return request.param


def outcome(function, written, *backwards):
    """The gradients after backwards through the results that are named, or that one raised."""
    leaves = [(torch.arange(1.0, 5.0) * scale).requires_grad_() for scale in (0.1, 0.2)]
    inputs = [leaf * 1 for leaf in leaves]
    results = function(*inputs)
    if written is not None:
        with torch.no_grad():
            (*inputs, *results)[written].mul_(3)
    try:
        for used in backwards:
            sum(results[i].sum() for i in used).backward()
    except RuntimeError as error:
        return "modified" if "modified by an inplace operation" in str(error) else str(error)[:30]
    return [leaf.grad for leaf in leaves]


def assert_same_outcomes(function, compiled, *case):
    ours, theirs = outcome(compiled, *case), outcome(function, *case)
    if isinstance(theirs, str) or isinstance(ours, str):
        assert ours == theirs, case
    else:
        for a, b in zip(ours, theirs):
            assert (a is None) == (b is None), case
            torch.testing.assert_close(a, b, msg=str(case))


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_a_write_before_the_backward(function, native):
    compiled = compile_function(function, sample(), config=Config(native=native))
    raised = [isinstance(outcome(function, written, used), str) for written in range(5) for used in SUBSETS]
    assert any(raised) and not all(raised)
    for written in range(5):
        for used in SUBSETS:
            assert_same_outcomes(function, compiled, written, used)


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_a_second_backward(function, native):
    compiled = compile_function(function, sample(), config=Config(native=native))
    for first, second in itertools.product(SUBSETS, SUBSETS):
        if set(second) <= set(first):
            assert_same_outcomes(function, compiled, None, first, second)


def sample():
    return [torch.ones(4).requires_grad_() * 1 for _ in range(2)]
