"""Small Triton functions that generated kernels call; a module's source holds those it uses.

In: names asked for by ``ops.py``, ``reduction.py``. Out: their source text, dependencies first.
Functions of ``libdevice`` are the accurate ones, not Triton's approximations; under the interpreter the runtime stands in for them.
Some elementary functions have shorter ones (``elementary.py``, ``rough.py``).
"""

from __future__ import annotations

from collections.abc import Iterable

from . import elementary, philox, rough

#: The function that rounds operands to TF32.
NEAREST_TF32 = "nearest_tf32"

#: name -> (helpers it calls, source)
_HELPERS: dict[str, tuple[tuple[str, ...], str]] = {}


def _helper(name: str, source: str, *needs: str) -> None:
    if name in _HELPERS:
        raise ValueError(f"helper {name} is registered twice")
    _HELPERS[name] = (needs, "@triton.jit\n" + source.strip("\n") + "\n")


def helper_sources(names: Iterable[str]) -> list[str]:
    """The source of each helper and of those it calls, each once, callees first."""
    done: dict[str, str] = {}

    def visit(name: str) -> None:
        if name in done:
            return
        needs, source = _HELPERS[name]
        for other in needs:
            visit(other)
        done[name] = source

    for name in sorted(names):
        visit(name)
    return list(done.values())


# Integer division towards minus infinity; Triton's own truncates.
_helper(
    "floordiv_int",
    """
def floordiv_int(a, b):
    q = a // b
    r = a - q * b
    return tl.where((r != 0) & ((r < 0) != (b < 0)), q - 1, q)
""",
)
_helper(
    "remainder_int",
    """
def remainder_int(a, b):
    r = a % b
    return tl.where((r != 0) & ((r < 0) != (b < 0)), r + b, r)
""",
)
_helper(
    "remainder_float",
    """
def remainder_float(a, b):
    r = libdevice.fmod(a, b)
    return tl.where((r != 0) & ((r < 0) != (b < 0)), r + b, r)
""",
)
_helper(
    "divide",
    """
def divide(a, b):
    if a.dtype == tl.float64:
        return a / b
    else:
        return tl.div_rn(a, b)
""",
)
# The same rounding as ``divide`` for 0 <= a <= 1 <= b, from the reciprocal of b: the remainder of the estimate is exact.
_helper(
    "divide_part",
    """
def divide_part(a, b, inverse):
    estimate = a * inverse
    return tl.fma(tl.fma(estimate, b * -1.0, a), inverse, estimate)
""",
)
# The nearest number of TF32's 10 bits, halves away from zero: what the libraries of NVIDIA give the units for matrices, which leave out the other 13 bits
# whatever they are. A NaN whose bits are all set would come out as -0.
_helper(
    NEAREST_TF32,
    """
def nearest_tf32(a):
    bits = a.to(tl.int32, bitcast=True)
    return tl.where(a == a, ((bits + 0x1000) & -0x2000).to(tl.float32, bitcast=True), a)
""",
)
_helper(
    "truncate",
    """
def truncate(a):
    return tl.where(a < 0, tl.ceil(a), tl.floor(a))
""",
)
# As eager: exact where the quotient is representable, minus zero and division by zero kept.
_helper(
    "floordiv_float",
    """
def floordiv_float(a, b):
    m = libdevice.fmod(a, b)
    q = divide(a - m, b)
    q = tl.where((m != 0) & ((b < 0) != (m < 0)), q - 1.0, q)
    f = tl.floor(q)
    f = tl.where(q - f > 0.5, f + 1.0, f)
    ratio = divide(a, b)
    f = tl.where(q == 0, ratio * 0.0, f)
    return tl.where(b == 0, ratio, f)
""",
    "divide",
)
_helper(
    "shift_left",
    """
def shift_left(a, b, WIDTH: tl.constexpr):
    valid = (b >= 0) & (b < WIDTH)
    amount = tl.where(valid, b, tl.zeros_like(b))
    shifted = a << amount
    return tl.where(valid, shifted, tl.zeros_like(shifted))
""",
)
_helper(
    "shift_right_signed",
    """
def shift_right_signed(a, b, WIDTH: tl.constexpr):
    valid = (b >= 0) & (b < WIDTH)
    return a >> tl.where(valid, b, tl.zeros_like(b) + (WIDTH - 1))
""",
)
_helper(
    "shift_right_unsigned",
    """
def shift_right_unsigned(a, b, WIDTH: tl.constexpr):
    valid = (b >= 0) & (b < WIDTH)
    amount = tl.where(valid, b, tl.zeros_like(b))
    shifted = a >> amount
    return tl.where(valid, shifted, tl.zeros_like(shifted))
""",
)
_helper(
    "power_unsigned",
    """
def power_unsigned(a, b, WIDTH: tl.constexpr):
    result = tl.zeros_like(a) + 1
    base = a
    rest = b
    for _ in tl.static_range(WIDTH):
        result = tl.where((rest & 1) != 0, result * base, result)
        base = base * base
        rest = rest >> 1
    return result
""",
)
# A negative exponent gives 0, except for the bases 1 and -1, as in eager.
_helper(
    "power_int",
    """
def power_int(a, b, WIDTH: tl.constexpr):
    one = tl.zeros_like(a) + 1
    result = one
    base = a
    rest = tl.where(b < 0, tl.zeros_like(b), b)
    for _ in tl.static_range(WIDTH):
        result = tl.where((rest & 1) != 0, result * base, result)
        base = base * base
        rest = rest >> 1
    odd = (b & 1) != 0
    reciprocal = tl.where(a == 1, one, tl.where(a == -1, tl.where(odd, a, one), one - one))
    return tl.where(b < 0, reciprocal, result)
""",
)
_helper(
    "sigmoid",
    """
def sigmoid(a):
    return divide(tl.full([], 1.0, a.dtype), 1.0 + libdevice.exp(a * -1.0))
""",
    "divide",
)
# Reflection below zero, recurrence up to ten, then the asymptotic series.
_helper(
    "digamma",
    """
def digamma(a):
    x = a.to(tl.float64)
    reflected = x < 0
    pi = tl.full([], 3.14159265358979323846, tl.float64)
    fraction = x - truncate(x)
    shift = tl.where(reflected, pi / libdevice.tan(pi * fraction) * -1.0, 0.0)
    y = tl.where(reflected, 1.0 - x, x)
    total = tl.zeros_like(y)
    for _ in tl.static_range(10):
        small = y < 10.0
        total = tl.where(small, total - 1.0 / y, total)
        y = tl.where(small, y + 1.0, y)
    z = 1.0 / (y * y)
    series = z * (8.33333333333333333333e-2 - z * (8.33333333333333333333e-3 - z * (3.96825396825396825397e-3 - z * (
        4.16666666666666666667e-3 - z * (7.57575757575757575758e-3 - z * (2.10927960927960927961e-2 - z * (
        8.33333333333333333333e-2)))))))
    result = libdevice.log(y) - 0.5 / y - series + total + shift
    result = tl.where(reflected & (fraction == 0), float('nan'), result)
    result = tl.where(x == 0, tl.where(libdevice.copysign(x * 0.0 + 1.0, x) < 0, float('inf'), -float('inf')), result)
    return result.to(a.dtype)
""",
    "truncate",
)
# NaN wins over every number.
_helper(
    "maximum",
    """
def maximum(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)
""",
)
_helper(
    "minimum",
    """
def minimum(a, b):
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)
""",
)
_helper(
    "product",
    """
def product(a, b):
    return a * b
""",
)
_helper(
    "total",
    """
def total(a, b):
    return a + b
""",
)
_helper(
    "exclusive_or",
    """
def exclusive_or(a, b):
    return a ^ b
""",
)
_helper(
    "logaddexp",
    """
def logaddexp(a, b):
    high = maximum(a, b)
    low = minimum(a, b)
    same = (high == low) & (tl.abs(high) == float('inf'))
    return tl.where(same, high, high + libdevice.log1p(libdevice.exp(low - high)))
""",
    "maximum",
    "minimum",
)
# (value, position) pairs: NaN is the extreme, the smaller position wins a tie.
_helper(
    "argmax",
    """
def argmax(a, i, b, j):
    a_nan = a != a
    b_nan = b != b
    first = (a > b) | (a_nan & (b_nan == 0)) | (((a == b) | (a_nan & b_nan)) & (i < j))
    return tl.where(first, a, b), tl.where(first, i, j)
""",
)
_helper(
    "argmin",
    """
def argmin(a, i, b, j):
    a_nan = a != a
    b_nan = b != b
    first = (a < b) | (a_nan & (b_nan == 0)) | (((a == b) | (a_nan & b_nan)) & (i < j))
    return tl.where(first, a, b), tl.where(first, i, j)
""",
)
for _name, (_needs, _source) in (*elementary.SOURCES.items(), *rough.SOURCES.items(), *philox.SOURCES.items()):
    _helper(_name, _source, *_needs)
# The sum of exp(v - largest so far), rescaled when the largest grows; nothing but -inf so far adds up to zero. ``v`` has the
# elements of one access side by side in its last dimension: they share one rescaling. The device's own exponential will do: its
# error of a term, weighted by the term, is below that of the order of summation, which is not eager's either.
_helper(
    "add_exponentials",
    """
def add_exponentials(high, total, v):
    higher = maximum(high, tl.reduce(v, 2, maximum))
    base = tl.where(higher == float('-inf'), 0.0, higher)
    return higher, total * tl.exp(high - base) + tl.sum(tl.exp(v - base[:, :, None]), 2)
""",
    "maximum",
)
_helper(
    "join_exponentials",
    """
def join_exponentials(high, total):
    highest = tl.reduce(high, 1, maximum)[:, None]
    return highest, tl.sum(total * tl.exp(high - highest), 1)[:, None]
""",
    "maximum",
)
# Welford: ``n`` values were seen by each lane, this one included.
_helper(
    "add_moment",
    """
def add_moment(mean, spread, v, n):
    distance = v - mean
    mean = mean + distance * divide(tl.full([], 1.0, n.dtype), n)
    return mean, spread + distance * (v - mean)
""",
    "divide",
)
_helper(
    "add_moment_inside",
    """
def add_moment_inside(mean, spread, v, n, inside):
    new_mean, new_spread = add_moment(mean, spread, v, n)
    return tl.where(inside, new_mean, mean), tl.where(inside, new_spread, spread)
""",
    "add_moment",
)
# Lanes that saw ``counts`` values each become (sum, sum of squared distances from the mean) of all ``n``.
_helper(
    "join_moments",
    """
def join_moments(mean, spread, counts, n):
    total = tl.sum(mean * counts, 1)[:, None]
    distance = mean - divide(total, tl.full([], n, mean.dtype))
    return total, tl.sum(spread + counts * distance * distance, 1)[:, None]
""",
    "divide",
)
