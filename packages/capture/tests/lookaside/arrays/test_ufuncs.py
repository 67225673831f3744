"""Universal functions and operators: dtypes, rounding, layouts and refusals as NumPy has them."""

from __future__ import annotations

import numpy as np
import pytest
from arrays import array, assert_captured, assert_left_to_numpy, function_of, statements

from flambeau_capture.lookaside.arrays.ufuncs import _RULES, _SHIFTS

pytestmark = pytest.mark.filterwarnings("ignore")

DTYPES = ("float64", "float32", "int32", "bool")
NUMBERS = (2, 0.5, np.float32(2.5), np.int8(3))
LEFT_OUT = ("floor_divide", "copysign", "remainder")
"""Fakes tell another layout for a mixture of orders, until the corrections of the package behind are there."""


def _takes(ufunc, *operands):
    with np.errstate(all="ignore"):
        try:
            return np.asarray(ufunc(*operands)).dtype in (
                np.dtype(name) for name in (*DTYPES, "int64", "int8", "float16")
            )
        except (TypeError, ValueError, OverflowError):
            return False


@pytest.mark.parametrize("ufunc", [ufunc for ufunc in _RULES if ufunc not in _SHIFTS], ids=lambda ufunc: ufunc.__name__)
def test_what_ufuncs_compute(ufunc):
    """Each loop that is taken is right; every ufunc is one graph for some dtype."""
    whole = 0
    for dtype in DTYPES:
        second = array(dtype if ufunc.__name__.startswith("bitwise") else "float64", (3,))
        given = [array(dtype, order="C" if ufunc.__name__ in LEFT_OUT else "F"), second][: ufunc.nin]
        if not _takes(ufunc, *given):
            continue
        program = (lambda a: ufunc(a)) if ufunc.nin == 1 else (lambda a, b: ufunc(a, b))
        try:
            assert_captured(program, lambda given=given: [each.copy("K") for each in given])
        except Exception as error:
            assert "[numpy]" in str(error), error
            continue
        whole += 1
    assert whole


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize(
    "text",
    ["a + {}", "{} - a", "a * {}", "a / {}", "a > {}", "a == {}", "np.maximum(a, {})", "np.hypot(a, {})", "a ** {}"],
)
def test_numbers_are_as_weak_as_in_numpy(text, number):
    """A number of Python's takes the dtype of the array, one of NumPy's has a dtype of its own."""
    scope = {"np": np, "number": number}
    program = eval("lambda a: " + text.format("number"), scope)
    for dtype in ("float32", "int32"):
        assert_captured(program, lambda dtype=dtype: [array(dtype)])


@pytest.mark.parametrize(
    "text",
    ["a + a[0]", "a + np.float32(1)", "a + a.astype('f4')", "a // 2", "a % 3", "-a", "abs(a)", "a & 1", "~a", "a << 1", "a >> 3", "[1, 2, 3] + a",
     "np.add(a, 1, dtype='f4')", "a.sum() * 2", "a[0, 0] + a", "a[0, 0] + 1", "a >= a.T[:1, :1]", "np.add(a, a, out=a)", "np.multiply(a, 2, a)"],
)  # fmt: skip
def test_operators(text):
    assert_captured(function_of(text), lambda: [array("int64")])


@pytest.mark.parametrize(
    "text",
    ["a += 1; return a", "a *= a; return a", "b = a; b -= 1; return a is b", "a[0] += a[1]; return a", "b = a[0]; b += 1; return b", "s = a[0, 0]; s += 1; return s, a",
     "np.add(a[0], a[1], out=a[0]); return a"],
)  # fmt: skip
def test_writes(text):
    """Operators in place write to the array that is given; scalars are not changed."""
    assert_captured(statements(text), lambda: [array("float32", order="F")])


@pytest.mark.parametrize(
    "text",
    [
        "a // 0",
        "a % a",
        "a ** -1",
        "2 ** a",
        "a + None",
        "a == 'x'",
        "np.add(a, 1, order='F')",
        "a + 300 if a.dtype == 'uint8' else a // a",
    ],
)
def test_what_is_left_to_numpy(text):
    """What raises or warns for some elements, and arguments that have no rule."""

    def program(a):
        try:
            with np.errstate(all="ignore"):
                return function(a)
        except (TypeError, ValueError):
            return "raised"

    function = function_of(text)
    assert_left_to_numpy(program, lambda: [array("int64") + 1])


def test_special_numbers():
    """Infinities, nans and signs of zeros are NumPy's, of squares and roots by the operator too."""
    special = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0, -2.5])

    def program(a):
        return (
            np.sign(a),
            a**0.5,
            np.power(a, 0.5),
            a**2,
            a % 2,
            a % -2,
            np.maximum(a, 0.0),
            np.fmax(a, 1.0),
            np.rint(a),
        )

    with np.errstate(all="ignore"):
        assert_captured(program, lambda: [special.copy()])
        found = program(special)
    assert np.signbit(found[4][4]) == np.signbit(special[4] % 2)


def test_errors_of_numbers_that_numpy_is_told_to_raise():
    """A later call under `numpy.errstate` raises as NumPy does."""
    from both_ways import recorded

    graphs = []
    region = recorded(lambda a: np.log(a), graphs)
    given = np.array([0.0, 1.0])
    with np.errstate(all="ignore"):
        assert region(given)[0] == -np.inf
    with np.errstate(all="raise"), pytest.raises(FloatingPointError):
        region(given)
    assert len(graphs) == 1
