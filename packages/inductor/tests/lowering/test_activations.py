"""Activations of tensors that eager refuses."""

import pytest
import torch

from .conftest import lower_and_run


@pytest.mark.parametrize("activation", [torch.nn.functional.silu, torch.nn.functional.gelu])
def test_integers_raise_as_in_eager(activation):
    """Tracing lets them through, so that the library call has to say it."""
    numbers = torch.arange(4)
    with pytest.raises(RuntimeError, match="not implemented for 'Long'"):
        activation(numbers)
    with pytest.raises(RuntimeError, match="not implemented for 'Long'"):
        lower_and_run(lambda x: activation(x), numbers)
