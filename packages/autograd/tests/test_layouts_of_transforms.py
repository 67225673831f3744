"""Strides of Fourier transforms on the CPU, predicted for layouts of their operand and orders of dimensions, are those that the kernels choose."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from flambeau_autograd.functional.predictions import corrected

aten = torch.ops.aten
LAYOUTS = {
    "row-major": torch.rand(5, 6, 7),
    "reversed": torch.rand(7, 6, 5).permute(2, 1, 0),
    "swapped": torch.rand(6, 5, 7).transpose(0, 1),
    "gaps": torch.rand(5, 6, 14)[..., ::2],
    "repeated": torch.rand(1, 6, 7).expand(5, 6, 7),
    "single": torch.rand(1, 6, 1),
}


def arguments_of(op: Any, tensor: torch.Tensor, dims: tuple[int, ...]) -> tuple[Any, ...]:
    """A whole transform over these dimensions; of complex numbers where the op wants them."""
    if op is aten._fft_r2c.default:
        return tensor, list(dims), 0, True
    last = True if op is aten._fft_c2c.default else max(2 * tensor.shape[dims[-1]] - 2, 1)
    return tensor.to(torch.complex64), list(dims), 0, last


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("op", [aten._fft_r2c.default, aten._fft_c2c.default, aten._fft_c2r.default], ids=str)
def test_strides_are_those_of_the_kernels(op: Any, layout: str) -> None:
    compared = 0
    for count in (1, 2, 3):
        for dims in itertools.permutations(range(3), count):
            tensor, *others = arguments_of(op, LAYOUTS[layout], dims)
            mode = FakeTensorMode()
            fake = mode.from_tensor(tensor)
            try:
                with mode:
                    predicted = op(fake, *others)
            except RuntimeError:
                continue  # the fakes of torch 2.11 fail for some orders
            assert corrected(op, (fake, *others), {}, predicted).stride() == op(tensor, *others).stride(), dims
            compared += 1
    assert compared >= 5
