"""Gradients lie as eager's: a sum of several in the memory of the one that came first, where nobody else looks at that."""

from __future__ import annotations

import itertools

import pytest
import torch
import torch.nn.functional as F
from lifting import compile_function

#: What leads to an input of three dimensions, with gradients of several layouts, in memory of their own or not.
PATHS = {
    "as it is": lambda x: x * 2,
    "itself": lambda x: x + torch.ones(3),
    "turned": lambda x: x.transpose(0, 2).contiguous().sin(),
    "a window": lambda x: x[:1].exp(),
    "turned and converted": lambda x: x.transpose(0, 1).double().contiguous(),
    "a row": lambda x: x.index_select(1, torch.tensor([0])),
    "a sum": lambda x: x.sum(0),
    "its greatest": lambda x: x.max(),
    "twice": lambda x: x.permute(2, 0, 1).reshape(-1) * x.flatten(),
}
SHAPES = [(2, 1, 3), (1, 4, 3), (3, 2, 1), (2, 4, 3)]
LAYOUTS = {
    "in order": lambda x: x,
    "turned": lambda x: x.transpose(0, 2).contiguous().transpose(0, 2),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("paths", [*itertools.combinations(PATHS, 2)])
def test_a_sum_of_two_gradients_lies_as_eagers(paths: tuple[str, str], layout: str) -> None:
    for shape in SHAPES:
        given = LAYOUTS[layout](torch.randn(shape)).detach()
        _compare(lambda x: tuple(PATHS[path](x) for path in paths), given)


@pytest.mark.parametrize("paths", [*itertools.combinations(("as it is", "turned", "a row", "a sum"), 3)])
def test_a_sum_of_three_gradients_lies_as_eagers(paths: tuple[str, ...]) -> None:
    """One of which goes two ways itself, so that two look at its memory for a while."""
    for shape in SHAPES:
        _compare(lambda x: tuple(PATHS[path](x + x.cos()) for path in paths), torch.randn(shape))


#: Whose backward has a kernel that lays the gradient out by itself.
KERNELS = {
    "mse": lambda x: F.mse_loss(x, ROWS.expand_as(x)),
    "smooth l1": lambda x: F.smooth_l1_loss(ROWS.expand_as(x), x, reduction="sum"),
    "huber": lambda x: F.huber_loss(x, ROWS.expand_as(x), reduction="none"),
    "glu": lambda x: F.glu(x, 1),
    "l1": lambda x: F.l1_loss(x, ROWS.expand_as(x)),
    "cross entropy": lambda x: F.binary_cross_entropy_with_logits(x, ROWS.expand_as(x)),
    "softmax": lambda x: x.softmax(1),
    "layer norm": lambda x: F.layer_norm(x, x.shape[1:]),
    "gelu": F.gelu,
    "max pool": lambda x: F.max_pool1d(x, 1),
    "nearest": lambda x: F.interpolate(x, 8),
}
ROWS = torch.tensor([0.5, 2.0, -1.0]).view(3, 1, 1)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", KERNELS)
def test_a_gradient_lies_as_the_kernel_lays_it(name: str, layout: str) -> None:
    for shape in ((3, 2, 4), (3, 4, 1), (3, 2, 2)):
        _compare(lambda x: (KERNELS[name](x),), LAYOUTS[layout](torch.randn(shape)).detach())


def _compare(function, given: torch.Tensor) -> None:
    found = []
    for run in (function, compile_function(function, [given.clone().requires_grad_()])):
        x = given.clone().requires_grad_()
        results = run(x)
        tangents = [torch.ones(r.shape, dtype=r.dtype) if r.is_contiguous() else torch.ones_like(r) for r in results]
        found += torch.autograd.grad(results, x, tangents)
    torch.testing.assert_close(found[1], found[0])
    assert found[1].stride() == found[0].stride(), tuple(given.shape)
