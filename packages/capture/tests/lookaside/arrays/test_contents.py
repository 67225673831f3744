"""Copies, conversions, subscripts, writes and choices."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from arrays import SHAPES, array, assert_captured, assert_left_to_numpy, function_of, statements

TAKEN = (
    "a.copy()", "np.copy(a)", "a.copy('F')", "np.array(a)", "np.asarray(a)", "np.ascontiguousarray(a)", "np.asarray(a, dtype='int32')", "a.astype(np.float32)",
    "a.astype(bool)", "a.astype(a.dtype)", "a.astype(a.dtype, copy=False)", "a.T.astype(np.float16)", "np.zeros_like(a)", "np.ones_like(a, dtype=int)",
    "np.full_like(a, 3)", "np.where(a > 0, a, 1.5)", "np.where(a > 0, 1, 2)", "np.clip(a, 0, 3)", "a.clip(max=2)", "np.clip(a, 1, a + 1)", "np.round(a, 2)", "a.round()",
    "a[0]", "a[-1]", "a[0, 1]", "a[1:]", "a[:, 0]", "a[::2]", "a[...]", "a[..., None]", "a[[0, 1]]", "a[:, [0, 1]]", "a[np.array([0, 1])]", "a[np.int64(1)]",
    "[x for x in a]", "a[0].sum()", "np.array([a.sum(), 2.0])", "np.array([a[0], a[1]])", "(a.shape, a.ndim, a.size, a.dtype, a.itemsize, a.nbytes, len(a))",
    "isinstance(a, np.ndarray) and isinstance(a.sum(), np.generic)", "a.dtype == np.float64 and a.dtype.kind == 'f'",
)  # fmt: skip
WRITES = (
    "a[0] = 5; return a", "a[:] = 0; return a, a * 2", "a[0, 1] = a[1, 0]; return a", "a[1:] = a[:-1]; return a", "a[[0, 1]] = 2; return a",
    "a[a > 0] = 0; return a", "a.fill(3); return a", "b = a[0]; b[...] = 7; return a, b", "s = a[0, 0]; a[0, 0] = 9; return s, a", "b = np.empty_like(a); b[...] = a; return b",
)  # fmt: skip


@pytest.mark.parametrize("text", TAKEN)
def test_what_is_computed(text):
    for dtype in ("float64", "int32"):
        for shape, order in SHAPES:
            assert_captured(function_of(text), lambda: [array(dtype, shape, order)])  # noqa: B023 - called in this round


@pytest.mark.parametrize("text", WRITES)
def test_writes_are_seen_outside(text):
    for dtype in ("float64", "int32"):
        for shape, order in SHAPES:
            assert_captured(statements(text), lambda: [array(dtype, shape, order)])  # noqa: B023 - called in this round


@pytest.mark.parametrize(
    "text",
    [
        "a[a > 1]",
        "a[::-1]",
        "np.where(a > 0)",
        "a.tolist()",
        "float(a[0, 0])",
        "a[True]",
    ],
)
def test_what_is_left_to_numpy(text):
    assert_left_to_numpy(function_of(text), lambda: [array("float64")])


@pytest.mark.parametrize("value", ["300", "-1", "float('nan')"])
def test_numbers_that_do_not_fit(value):
    def program(a):
        try:
            function(a)
        except (OverflowError, ValueError) as error:
            return type(error).__name__
        return a

    function = statements(f"a[0] = {value}")
    assert_left_to_numpy(program, lambda: [array(np.uint8)])


@pytest.mark.parametrize("mask", [[True, False, True], [True, False]])
def test_a_mask_that_is_known(mask):
    """How many elements it selects is known; one of another length is refused."""

    def program(a, x):
        try:
            return a[:, np.array(mask)], a[0][mask], x[:, np.array(mask)]
        except IndexError as error:
            return type(error).__name__

    assert len(mask) == 3 or program(array("float64"), torch.ones(2, 3)) == "IndexError"
    check = assert_captured if len(mask) == 3 else assert_left_to_numpy
    check(program, lambda: [array("float64"), torch.ones(2, 3)])
