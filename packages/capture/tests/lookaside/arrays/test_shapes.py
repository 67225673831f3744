"""Views stay views, copies are copies, and joined arrays have NumPy's dtype and layout."""

from __future__ import annotations

import pytest
from arrays import SHAPES, array, assert_captured, assert_left_to_numpy, function_of, statements

TAKEN = (
    "a.reshape(-1)", "a.reshape((-1, 2))", "np.reshape(a, (2, -1))", "a.ravel()", "a.flatten()", "a.squeeze()", "np.expand_dims(a, 0).squeeze(0)", "a.T",
    "a.transpose()", "np.swapaxes(a, 0, -1)", "np.moveaxis(a, 0, -1)", "a.mT", "a.real", "np.concatenate([a, a])", "np.concatenate((a, a.astype('f4')), 1)",
    "np.stack([a, a], axis=-1)", "np.stack([a.T, a.T], 1)", "np.vstack([a, a])", "np.hstack([a, a])", "np.split(a, 2)", "np.array_split(a, 3, axis=-1)",
    "np.roll(a, 1)", "np.roll(a, -1, axis=1)", "np.tile(a, 2)", "np.repeat(a, 2, axis=0)", "np.tril(a)", "np.triu(a, 1)", "np.atleast_2d(a)",
    "a.reshape(a.shape)", "np.transpose(a, tuple(range(a.ndim))[::-1])",
)  # fmt: skip


@pytest.mark.parametrize("text", TAKEN)
def test_what_is_computed(text):
    for dtype in ("float64", "int32"):
        for shape, order in SHAPES:
            if "split(a, 2)" in text and shape[0] % 2:
                continue
            assert_captured(function_of(text), lambda: [array(dtype, shape, order)])  # noqa: B023 - called in this round


@pytest.mark.parametrize(
    "text",
    [
        "a.ravel('F')",
        "a.imag",
        "np.flip(a)",
        "np.broadcast_to(a, (2, 2, 3))",
        "np.concatenate([a, a], axis=None)",
        "np.asfortranarray(a)",
    ],
)
def test_what_is_left_to_numpy(text):
    assert_left_to_numpy(function_of(text), lambda: [array("float64")])


@pytest.mark.parametrize(
    "text",
    [
        "b = a.T; b[0] = 9; return a, b",
        "b = a.reshape(-1); b[0] = 3; return a, b",
        "b = a.flatten(); b[1] = 3; return a, b",
        "b = a.ravel(); b += 1; return a, b",
    ],
)
def test_writes_through_views(text):
    for order in "CFK":
        assert_captured(statements(text), lambda: [array("float64", order=order)])  # noqa: B023 - called in this round


@pytest.mark.parametrize(
    "text", ["np.take(a, [0, 1], axis=0)", "np.take(a, [0, 1, 1], axis=1)", "a.take([1], axis=-1)"]
)
def test_elements_taken_along_an_axis(text):
    for shape, order in SHAPES:
        assert_captured(function_of(text), lambda: [array("float64", shape, order)])  # noqa: B023 - called in this round
