"""Activations of tensors that eager refuses."""

import pytest
import torch

from .conftest import lower_and_run

aten = torch.ops.aten


@pytest.mark.parametrize("activation", [torch.nn.functional.silu, torch.nn.functional.gelu])
def test_integers_raise_as_in_eager(activation):
    """Tracing lets them through, so that the library call has to say it."""
    numbers = torch.arange(4)
    with pytest.raises(RuntimeError, match="not implemented for 'Long'"):
        activation(numbers)
    with pytest.raises(RuntimeError, match="not implemented for 'Long'"):
        lower_and_run(lambda x: activation(x), numbers)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradients_from_results(check, dtype):
    """Of sigmoid and tanh, where they were not taken apart before."""
    grad, result = torch.randn(5).to(dtype), torch.rand(5).to(dtype)
    check(torch.ops.aten.sigmoid_backward, grad, result)
    check(torch.ops.aten.tanh_backward, grad, result)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("alpha", [1.0, 0.3, -1.0, -0.0, float("inf"), float("nan")])
def test_zero_is_on_the_straight_part_of_elu(check, alpha, dtype):
    """It keeps its sign, whatever the other part is multiplied by."""
    x = torch.tensor([0.0, -0.0, 1.0, -1.0, -100.0, float("inf"), float("-inf"), float("nan")], dtype=dtype)
    found = check(lambda x: (aten.elu(x, alpha), aten.elu(x, alpha, 2.0, 0.5), aten.celu(x, alpha or 1.0)), x)
    for result in found.outputs:
        assert result[:2].signbit().tolist() == [False, True]
