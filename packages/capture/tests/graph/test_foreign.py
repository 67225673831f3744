"""Of an operator without a rule for gradients eager differentiates the kernel: it is no part of a graph that has them."""

from __future__ import annotations

import pytest
import torch
from both_ways import assert_equal, recorded

_LIBRARY = torch.library.Library("flambeau_test_foreign", "FRAGMENT")


def _triple(name, key):
    _LIBRARY.define(f"{name}(Tensor x) -> Tensor")
    full = f"flambeau_test_foreign::{name}"
    torch.library.impl(full, key, lambda x: x * 3, lib=_LIBRARY)
    if key != "CompositeImplicitAutograd":
        torch.library.register_fake(full, torch.empty_like, lib=_LIBRARY)
    return getattr(torch.ops.flambeau_test_foreign, name)


_PLAIN = _triple("plain", "CPU")
_EXPLICIT = _triple("explicit", "CompositeExplicitAutograd")
_COMPOSED = _triple("composed", "CompositeImplicitAutograd")
_RULED = _triple("ruled", "CPU")
torch.library.register_autograd("flambeau_test_foreign::ruled", lambda ctx, grad: grad * 3, lib=_LIBRARY)


@pytest.mark.filterwarnings("ignore:.*autograd kernel was not registered")
@pytest.mark.parametrize(
    ("operator", "breaks"),
    [(_PLAIN, True), (_PLAIN.default, True), (_EXPLICIT, True), (_COMPOSED, False), (_RULED, False)],
)
def test_gradients_are_eagers(operator, breaks):
    """It runs between two graphs where a gradient is wanted of it, and only there."""

    def run(x):
        return operator(x * 2).sin()

    graphs = []
    region = recorded(run, graphs, fullgraph=False)
    given = [torch.ones(3, requires_grad=True) for _ in range(2)]
    found, wanted = region(given[0]), run(given[1])
    assert len(graphs) == 1 + breaks
    found.sum().backward()
    wanted.sum().backward()
    assert_equal(given[0].grad, given[1].grad)
    graphs.clear()
    with torch.no_grad():
        assert_equal(region(given[0]), run(given[1]))
    assert_equal(region(torch.ones(3)), run(torch.ones(3)))
    assert len(graphs) == 2
