"""Programs on a CUDA device: generated kernels and gradients equal eager. Run with ``python -m pytest -m gpu``."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import flambeau
from tests.comparison import assert_same, gradients, twin_of
from tests.models import zoo

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]

FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "pointwise": lambda x: torch.tanh(x * 2) + x.sigmoid(),
    "transposed": lambda x: (x.t() + 1).contiguous(),
    "row_reduction": lambda x: x.softmax(-1),
    "column_reduction": lambda x: x.sum(0),
    "full_reduction": lambda x: x.exp().mean(),
    "layer_norm": lambda x: F.layer_norm(x, [x.shape[-1]]),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function_and_gradient_equal_eager(name: str) -> None:
    """Result and gradient of a function of one matrix, whose sizes fill no block."""
    function = FUNCTIONS[name]
    x = torch.randn(67, 301, device="cuda")
    ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    actual, expected = flambeau.compile(function)(ours), function(theirs)
    assert_same(actual, expected)
    weights = torch.randn_like(expected)
    actual.backward(weights)
    expected.backward(weights)
    assert_same(ours.grad, theirs.grad)


def test_misaligned_input() -> None:
    """A tensor that starts between multiples of 16 bytes."""
    compiled = flambeau.compile(FUNCTIONS["pointwise"])
    whole = torch.randn(4097, device="cuda")
    for x in (whole[:4096], whole[1:]):
        assert_same(compiled(x), FUNCTIONS["pointwise"](x))


@pytest.mark.parametrize("name", ["mlp", "gpt2"])
def test_training_step_equals_eager(name: str) -> None:
    """Loss and every gradient of a step; dropout draws as eager does."""
    case = zoo.make(name)
    model = case.model.cuda().train()
    eager = twin_of(model)
    inputs = {key: value.cuda() for key, value in case.inputs.items()}
    torch.manual_seed(0)
    expected = case.loss(eager(**inputs))
    expected.backward()
    torch.manual_seed(0)
    actual = case.loss(flambeau.compile(model)(**inputs))
    actual.backward()
    assert_same(actual, expected)
    assert_same(gradients(model), gradients(eager), rtol=1e-3, atol=1e-4)
