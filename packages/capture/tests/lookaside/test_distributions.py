"""`torch.distributions` with its checks of parameters and samples: one graph, and its errors as in eager."""

from __future__ import annotations

import pytest
import torch
from both_ways import assert_equal, eager, outcome
from torch import distributions

from flambeau_capture import make_region

MADE = {
    "Normal": lambda p: distributions.Normal(p, p.abs() + 0.1),
    "Bernoulli": lambda p: distributions.Bernoulli(probs=p),
    "Bernoulli of logits": lambda p: distributions.Bernoulli(logits=p),
    "Categorical": lambda p: distributions.Categorical(p.abs() + 0.1),
    "Categorical of logits": lambda p: distributions.Categorical(logits=p),
    "Independent": lambda p: distributions.Independent(distributions.Normal(p, torch.ones_like(p)), 1),
    "Exponential": lambda p: distributions.Exponential(p),
    "Uniform": lambda p: distributions.Uniform(p, p + 1),
    "Laplace": lambda p: distributions.Laplace(p, p + 2),
    "Beta of a sample": lambda p: distributions.Beta(p + 0.5, p + 0.5),
}


@pytest.mark.parametrize("make", MADE.values(), ids=MADE)
def test_a_distribution_is_made_sampled_and_scored(make):
    """Its lazy parameters too; where an argument is refused, the error is eager's."""

    def program(p):
        made = make(p)
        x = made.sample()
        return made.log_prob(x), made.mean.nan_to_num(), made.batch_shape, made.event_shape

    region = make_region(program, eager, fullgraph=True)
    for p in (torch.tensor([0.2, 0.5, 0.7]), torch.tensor([0.2, -0.5, 1.7]), torch.tensor([0.9, 0.1, 0.3])):
        sides = []
        for function in (region, program):
            torch.manual_seed(1)
            sides.append((outcome(function, p.clone()), torch.rand(1)))
        assert_equal(*sides)


def test_a_lazy_parameter_is_computed_once_and_kept(check):
    """In the distribution, as eager keeps it; asked of the class, it is a property that looks like one."""

    def program(x):
        made = distributions.Bernoulli(probs=x.abs() / 10)
        first = made.logits
        return made.logits is first, "logits" in vars(made), isinstance(distributions.Bernoulli.probs, property), first

    check(program)


def test_what_has_no_reversed_of_its_own_is_reversed_by_its_items(check):
    """Sizes and named tuples."""
    check(lambda x: (list(reversed(x.shape)), x + 1))
    check(lambda x: ([*reversed(x.max(0))][0], next(reversed(torch.Size([1, 2])))))
