"""Elementary functions of float32 that kernels carry themselves: as accurate as ``libdevice``'s, in fewer instructions.

Out: ``SOURCES``, for ``helpers.py``. The polynomials come from ``tools/fit_elementary.py``; fused multiply-adds inside a function
are part of its definition. Largest errors over all arguments, in units in the last place (eager's own are 1 to 2):

    sin, cos   1.6    one reduction of the argument serves both; 22 instructions for both, ``libdevice`` takes about 50
    log1p      1.8    19 instructions, not 26; special values come out of the device's own logarithm, which only counts powers of two
    erf        2 of 1, where it is added to a number of at least 1 (GELU): 12 instructions, not 28

The device's own exponential and logarithm err by two units at most. A block with an argument beyond ``LARGEST_ANGLE`` in it
takes ``libdevice``'s sine and cosine, which reduce any argument.
"""

from __future__ import annotations

import struct

#: Up to here the quotient with π/2 has so few bits that its products with the parts of π/2 are exact.
LARGEST_ANGLE = 105000.0
_ANGLE_BITS = struct.unpack("<i", struct.pack("<f", LARGEST_ANGLE))[0]

# 12582912 is 1.5 * 2**23: a float32 of that size has no bits behind the point, and its last bits count from there.
_SIN_COS = f"""
def sin_cos(x):
    turned = tl.fma(x, 0.6366197723675814, 12582912.0)
    quarters = turned.to(tl.int32, bitcast=True)
    turned = turned - 12582912.0
    r = tl.fma(turned, -1.5707963705062866, x)
    r = tl.fma(turned, 4.371138828673793e-08, r)
    r = tl.fma(turned, 1.7151245100058e-15, r)
    z = r * r
    s = tl.fma(z, -0.00019517897453624755, 0.008332187309861183)
    s = tl.fma(s, z, -0.16666655242443085)
    s = tl.fma(s, tl.fma(z, r, 0.0), r)
    c = tl.fma(z, 2.4432327336398885e-05, -0.0013887309469282627)
    c = tl.fma(c, z, 0.04166664555668831)
    c = tl.fma(c, z, -0.5)
    c = tl.fma(c, z, 1.0)
    odd = (quarters & 1) != 0
    sign = quarters << 30
    s, c = tl.where(odd, c, s), tl.where(odd, s, c)
    s = (s.to(tl.int32, bitcast=True) ^ (sign & -2147483648)).to(tl.float32, bitcast=True)
    c = (c.to(tl.int32, bitcast=True) ^ ((sign + 1073741824) & -2147483648)).to(tl.float32, bitcast=True)
    if tl.max(tl.abs(x).to(tl.int32, bitcast=True)) > {_ANGLE_BITS}:
        s = libdevice.sin(x)
        c = libdevice.cos(x)
    return s, c
"""

# x + 1 is 2**turned times 1 + t, t between √½ - 1 and √2 - 1; t is found from x itself, so that nothing of a small x is lost.
# Where x + 1 is 0, negative, infinite or NaN, so is its logarithm, and nothing added to it changes that.
_LOG1P = """
def log1p_float(x):
    turned = libdevice.fast_log2f(x + 1.0) + 12582912.0
    shift = turned.to(tl.int32, bitcast=True) << 23
    turned = turned - 12582912.0
    scaled = (x.to(tl.int32, bitcast=True) - shift).to(tl.float32, bitcast=True)
    t = scaled + tl.fma((1082130432 - shift).to(tl.float32, bitcast=True), 0.25, -1.0)
    p = tl.fma(t, 0.08741014450788498, -0.14310236275196075)
    p = tl.fma(p, t, 0.1491679698228836)
    p = tl.fma(p, t, -0.1657000482082367)
    p = tl.fma(p, t, 0.1996215283870697)
    p = tl.fma(p, t, -0.25001785159111023)
    p = tl.fma(p, t, 0.33333948254585266)
    p = tl.fma(p, t, -0.49999991059303284)
    p = tl.fma(p, t * t, t)
    return libdevice.copysign(tl.fma(turned, 0.6931471805599453, p), x)
"""

# 1 - 2**p(a): accurate beside 1, not by itself near 0. Far out the leading coefficient takes p to minus infinity.
_ERF_BESIDE_ONE = """
def erf_beside_one(x):
    a = tl.abs(x)
    p = tl.fma(a, -4.5357995986705646e-05, 0.00044551093014888465)
    p = tl.fma(p, a, -0.0014894846826791763)
    p = tl.fma(p, a, -0.0007744922768324614)
    p = tl.fma(p, a, 0.028253482654690742)
    p = tl.fma(p, a, -0.14848147332668304)
    p = tl.fma(p, a, -0.918416440486908)
    p = tl.fma(p, a, -1.6279085874557495)
    return libdevice.copysign(1.0 - tl.exp2(p * a), x)
"""

#: name -> (helpers it calls, source)
SOURCES: dict[str, tuple[tuple[str, ...], str]] = {
    "sin_cos": ((), _SIN_COS),
    "log1p_float": ((), _LOG1P),
    "erf_beside_one": ((), _ERF_BESIDE_ONE),
}
