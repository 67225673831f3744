"""Reductions, positions, running sums and sorts, over all axes that NumPy takes."""

from __future__ import annotations

import numpy as np
import pytest
from arrays import SHAPES, array, assert_captured, assert_left_to_numpy, function_of

TAKEN = (
    "np.sum(a)", "a.sum(0)", "np.sum(a, axis=-1, keepdims=True)", "a.sum(axis=(0, 1))", "a.sum(dtype='f4', axis=1)", "np.prod(a)", "a.prod(1)",
    "np.mean(a)", "a.mean(axis=(0, 1), keepdims=True)", "a.std()", "np.var(a, ddof=1)", "a.std(axis=0, keepdims=True)", "a.max()", "a.min(0)",
    "np.amax(a, axis=(0, 1))", "a.any()", "a.all(1)", "np.any(a > 2, axis=0)", "a.argmax()", "a.argmin(0)", "np.argmax(a, axis=-1, keepdims=True)",
    "a.cumsum()", "np.cumsum(a, axis=0)", "a.cumprod(1)", "np.sort(a)", "np.sort(a, axis=None)", "np.argsort(a, kind='stable')", "np.diff(a)",
    "np.diff(a, axis=0)", "np.count_nonzero(a, axis=0)", "a.sum(axis=0).sum()",
)  # fmt: skip
LEFT = (
    "np.argsort(a)", "a.std(ddof=100)", "a.mean(axis=0)[:0].mean()", "a.sum(out=a[0, 0, ...])", "a.sum(where=a > 1)", "np.median(a)", "a.max(initial=3)",
)  # fmt: skip


@pytest.mark.parametrize("text", TAKEN)
def test_what_is_computed(text):
    for dtype in ("float64", "float32", "int32"):
        for shape, order in SHAPES:
            assert_captured(function_of(text), lambda: [array(dtype, shape, order)])  # noqa: B023 - called in this round


@pytest.mark.parametrize("text", LEFT)
@pytest.mark.filterwarnings("ignore")
def test_what_is_left_to_numpy(text):
    assert_left_to_numpy(function_of(text), lambda: [array("float64")])


def test_truths_and_small_integers():
    """Sums of these are wider than they are."""
    for dtype in ("bool", "int8", "float16"):
        assert_captured(
            lambda a: (a.sum(), a.max(), np.prod(a), a.any(), a.argmax(), a.mean(1)), lambda: [array(dtype)]
        )  # noqa: B023 - called in this round


def test_a_sort_in_place():
    def program(a):
        a.sort()
        return a

    assert_captured(program, lambda: [array("float64")])


def test_an_axis_that_is_not_there():
    def program(a):
        try:
            return a.sum(5)
        except np.exceptions.AxisError as error:
            return str(error)

    assert_left_to_numpy(program, lambda: [array("float64")])
