"""Training with sizes that change, where the backward alone cannot tell them: a gradient arrives padded, concatenated or cut."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import flambeau
from tests.comparison import assert_same

PROGRAMS = {
    "padded": lambda a, b: F.pad(a, (1, 1)) * 2 + F.pad(b, (2, 0)),
    "concatenated": lambda a, b: torch.cat([a, a * 2, b], 1).sin(),
    "flattened": lambda a, b: torch.cat([a.flatten(), b.flatten()]).exp(),
    "cut": lambda a, b: (a @ b)[1:, : a.shape[0] // 2] * 3,
    "expanded": lambda a, b: (a[:, :, None] + b[:, None]).amax(1),
}


@pytest.mark.compiles(graphs=1)
@pytest.mark.parametrize("wanted", [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("name", PROGRAMS)
def test_every_size_is_told(name: str, wanted: tuple[bool, bool]) -> None:
    """One graph for three sizes, gradients as eager's."""
    function = PROGRAMS[name]
    compiled = flambeau.compile(function, dynamic=True)
    for size in (4, 6, 10):
        ours = [torch.randn(size, size, requires_grad=grad) for grad in wanted]
        theirs = [t.detach().clone().requires_grad_(t.requires_grad) for t in ours]
        found, expected = compiled(*ours), function(*theirs)
        assert_same(found, expected)
        found.square().sum().backward()
        expected.square().sum().backward()
        assert_same([t.grad for t in ours], [t.grad for t in theirs])
