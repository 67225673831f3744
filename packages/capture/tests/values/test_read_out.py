"""Numbers read out of tensors stay in the graph, are Python's own when they come back, and are asked for where the program branches on them."""

from __future__ import annotations

import pytest
import torch
from both_ways import assert_equal, eager, outcome

from flambeau_capture import make_region

X = torch.linspace(-2, 3, 12).reshape(3, 4)


def _calls(function, *calls, fullgraph=True, **options):
    """Each call compared with plain Python; how often the function was compiled."""
    records = []
    region = make_region(function, eager, observer=records.append, fullgraph=fullgraph, **options)
    for call in calls:
        clones = [[a.clone() if isinstance(a, torch.Tensor) else a for a in call] for _ in range(2)]
        assert_equal((outcome(region, *clones[0]), clones[0]), (outcome(function, *clones[1]), clones[1]))
    return len(records)


PROGRAMS = {
    "items": lambda x: (x.max().item(), x.argmax().item(), (x > 0).any().item(), x[0, 0].double().item()),
    "list": lambda x: (x.tolist(), x.sum().tolist(), (x[0] > 0).tolist(), x[:0].tolist()),
    "factor": lambda x: x * x.max().item() + x.argmax().item(),
    "floats again": lambda x: (x.sum().item() * 3 + 0.1) / 7,
    "size": lambda x: torch.zeros(x.argmax().item() % 5) + 1,
    "window": lambda x: x[: x.argmax().item() - 9] + 1,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_graph_for_all_values(name):
    """Values, types and later calls are as in plain Python."""
    assert _calls(PROGRAMS[name], (X,), (-X,), (X * 0,), (X * 1e30,)) == 1


def test_a_number_of_the_caller_is_guarded_where_it_decides():
    """Each value, or each side, is compiled for itself; where the frame writes to a tensor, none is asked for."""

    def loop(x, n):
        for _ in range(n.item()):
            x = x + 1
        return x

    def branch(x, n):
        return x + n.item() if n.item() > 2 else x - n.item()

    two, three, five = map(torch.tensor, (2, 3, 5))
    assert _calls(loop, (X, two), (X, three), (X, two)) == 2
    assert _calls(branch, (X, two), (X, three), (X, five), (X, two)) == 2

    def written(x, n):
        n.add_(1)
        return x + 1 if n.item() > 2 else x - 1

    assert _calls(written, (X, two), (X, three), (X, torch.tensor(0)), fullgraph=False) > 1


def test_where_the_graph_cannot_hold_it_plain_python_does():
    """Numbers beyond 64 bits, and errors for the numbers that come."""
    big = torch.tensor([2**62, 3])

    def power(x):
        return x.max().item() * x.max().item() + x.min().item()

    _calls(power, (torch.tensor([7, 3]),), (big,), (-big,))
    _calls(lambda x: 7 // x.min().item(), (torch.tensor([7, 3]),), (torch.tensor([7, 0]),))
    _calls(lambda x: x + 1 / x.sum().item(), (X,), (X * 0,))

    def same(x):
        return torch.isnan(x * 0 + (lambda m: m - m)(x.max().item()))

    _calls(same, (X,), (torch.full((2,), float("inf")),), fullgraph=False)


def test_truth_values_are_no_numbers_of_the_graph():
    """Only Python counts with them."""

    def truth(x):
        return ((x > 0).any().item() == True, (x > 0).any().item() + 1)  # noqa: E712 - the comparison is what is tested

    _calls(truth, (X,), (-X * X,), fullgraph=False)


def test_what_is_not_kept(broken):
    """Without the option, of what holds several numbers, and of kinds that the graph has none for."""
    records = []
    region = make_region(lambda x: x.sum().item(), eager, capture_scalar_outputs=False, observer=records.append)
    assert region(X) == X.sum().item()
    assert {found.code for record in records for found in record.breaks} == {"data-dependent-value"}
    assert broken(lambda x: x.item()) == {"data-dependent-value"}
    assert broken(lambda x: x.to(torch.complex64).sum().item()) == {"data-dependent-value"}
    assert broken(lambda x: x.tolist(), torch.zeros(9, 9)) == {"data-dependent-value"}
