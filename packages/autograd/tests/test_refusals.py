"""What eager's kernels refuse, or do not say in advance, and fakes do: asked with made-up operands where that is safe."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import pytest
import torch
from torch._subclasses.fake_tensor import DynamicOutputShapeException, FakeTensorMode

from flambeau_autograd.functional import refusals
from flambeau_autograd.functional.predictions import corrected

aten = torch.ops.aten
ONES = torch.ones(2)


def test_the_type_that_is_asked_for_may_be_refused() -> None:
    assert refusals.refused(aten.nansum.default, (ONES,), {"dtype": torch.complex64})
    assert not refusals.refused(aten.nansum.default, (ONES,), {"dtype": torch.float64})


@pytest.mark.parametrize(
    ("op", "slopes"),
    [
        (aten.leaky_relu_backward.default, lambda slope: (slope,)),
        (aten.elu_backward.default, lambda slope: (slope, 1, 1)),
    ],
    ids=["leaky_relu", "elu"],
)
def test_a_slope_below_zero_is_refused_of_a_result(op: Any, slopes: Callable[[float], tuple[float, ...]]) -> None:
    """The sign of the result is not that of the argument then. Asked with made-up operands the kernel would not say so of the argument."""

    def refused(slope: float, is_result: bool) -> bool:
        rest = slopes(slope)
        arguments = (ONES, ONES, *rest, is_result) if len(rest) == 1 else (ONES, *rest, is_result, ONES)
        return refusals.refused(op, arguments, {})

    assert refused(-0.5, True)
    assert not refused(0.5, True)
    assert not refused(-0.5, False)


def test_kernels_of_libraries_are_not_asked() -> None:
    """With a made-up weight that is larger than what it is laid over, oneDNN's convolution ends the process on some machines."""
    image = torch.ones(1, 1, 2, 2, dtype=torch.bfloat16)
    with mock.patch.object(refusals, "_ask", side_effect=AssertionError("asked")):
        arguments = (image, image, None, [1, 1], [3, 3], [3, 3], False, [0, 0], 1)
        assert not refusals.refused(aten.convolution.default, arguments, {})


def test_a_count_that_depends_on_elements_is_not_predicted() -> None:
    """The fakes of torch 2.11 say that among any indices one is different."""
    with FakeTensorMode(), pytest.raises(DynamicOutputShapeException):
        arguments = (torch.zeros(5, dtype=torch.int64), False)
        corrected(aten._unique.default, arguments, {}, aten._unique.default(*arguments))
