"""Products and norms."""

from __future__ import annotations

import pytest
from arrays import array, assert_captured, assert_left_to_numpy, function_of

TAKEN = (
    "a @ a.T", "np.matmul(a.T, a)", "a.dot(a.T)", "np.dot(a, a[0])", "np.inner(a, a)", "np.outer(a[0], a[1])", "a[0] @ a[1]", "np.einsum('ij,kj->ik', a, a)",
    "np.einsum('ij,ij->i', a, a)", "np.linalg.norm(a)", "np.linalg.norm(a, axis=1)", "np.linalg.norm(a, ord=1, axis=1, keepdims=True)", "np.linalg.norm(a[0])",
    "np.trace(a)", "np.stack([a @ a.T, np.einsum('ij,kj->ik', a, a)]).sum(0)",
)  # fmt: skip


@pytest.mark.parametrize("text", TAKEN)
def test_what_is_computed(text):
    for dtype in ("float64", "float32", "int32"):
        for order in "CF":
            assert_captured(function_of(text), lambda: [array(dtype, order=order)])  # noqa: B023 - called in this round


def test_tensordot():
    assert_captured(function_of("np.tensordot(a, a.T, axes=1)"), lambda: [array("float64")])


@pytest.mark.parametrize(
    "text",
    [
        "np.einsum('ij->ji', a)",
        "np.linalg.norm(a, 'nuc')",
        "np.linalg.norm(a, ord=3, axis=0)",
        "np.dot(a[0, 0], a)",
        "np.kron(a, a)",
    ],
)
def test_what_is_left_to_numpy(text):
    assert_left_to_numpy(function_of(text), lambda: [array("float64")])
