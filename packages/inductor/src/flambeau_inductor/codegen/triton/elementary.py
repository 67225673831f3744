"""Elementary functions of float32 that kernels carry themselves: as accurate as ``libdevice``'s, in fewer instructions.

Out: ``SOURCES``, for ``helpers.py``. The polynomials come from ``tools/fit_elementary.py``; fused multiply-adds inside a function
are part of its definition. Largest errors over all arguments, in units in the last place (eager's own are 1 to 2):

    sin, cos   1.6    one reduction of the argument serves both; 24 instructions for both, ``libdevice`` takes about 50
    log1p      1.8    18 instructions, not 26; special values come out of the device's own logarithm, which only counts powers of two
    erf        2 of 1, where it is added to a number of at least 1 (GELU): 12 instructions, not 28
    tanh       2.5   15 instructions without a branch; ``libdevice``'s 19 have one, whose sides threads of a warp take one after the other

The device's own exponential and logarithm err by two units at most.

Where the result is rounded to 16 bits at last, those of ``rough.py`` take fewer still.
"""

from __future__ import annotations

from . import large_angles

# 12582912 is 1.5 * 2**23: a float32 of that size has no bits behind the point, and its last bits count from there.
# The parts of π/2 are all rounded down: with one sign, none of them turns an angle of -0.0 into 0.0.
_SIN_COS = """
def sin_cos(x):
    turned = tl.fma(x, 0.6366197723675814, 12582912.0)
    quarters = turned.to(tl.int32, bitcast=True)
    turned = turned - 12582912.0
    r = tl.fma(turned, -1.570796251296997, x)
    r = tl.fma(turned, -7.549789415861596e-08, r)
    r = tl.fma(turned, -5.390302529957765e-15, r)
    r, quarters = reduce_large_angles(x, r, quarters)
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
    return s, c
"""

# x + 1 is 2**turned times 1 + t/4, t/4 between √½ - 1 and √2 - 1; t is found from x itself, so that nothing of a small x is lost.
# Four times 2**-turned is a normal number for the largest x too: the coefficients are divided by powers of four instead.
# Where x + 1 is 0, negative, infinite or NaN, so is its logarithm, and nothing added to it changes that.
_LOG1P = """
def log1p_float(x):
    turned = libdevice.fast_log2f(x + 1.0) + 12582912.0
    scale = (1082130432 - (turned.to(tl.int32, bitcast=True) << 23)).to(tl.float32, bitcast=True)
    turned = turned - 12582912.0
    t = tl.fma(x, scale, scale - 4.0)
    p = tl.fma(t, 3.3344323924211494e-07, -2.183568767577526e-06)
    p = tl.fma(p, t, 9.104490345634986e-06)
    p = tl.fma(p, t, -4.045411333208904e-05)
    p = tl.fma(p, t, 0.00019494289881549776)
    p = tl.fma(p, t, -0.0009766322327777743)
    p = tl.fma(p, t, 0.005208429414778948)
    p = tl.fma(p, t, -0.031249994412064552)
    p = tl.fma(p, t * t, t * 0.25)
    return libdevice.copysign(tl.fma(turned, 0.6931471805599453, p), x)
"""

# 1 - 2**p(a): accurate beside 1, not by itself near 0. Far out the leading coefficient takes p to minus infinity.
ERF_BESIDE_ONE = """
def {name}(x):
    a = tl.abs(x)
    p = tl.fma(a, -4.5357995986705646e-05, 0.00044551093014888465)
    p = tl.fma(p, a, -0.0014894846826791763)
    p = tl.fma(p, a, -0.0007744922768324614)
    p = tl.fma(p, a, 0.028253482654690742)
    p = tl.fma(p, a, -0.14848147332668304)
    p = tl.fma(p, a, -0.918416440486908)
    p = tl.fma(p, a, -1.6279085874557495)
    return libdevice.copysign(1.0 - {exp2}(p * a), x)
"""

# Near 0 a polynomial, as 1 - 2 / (exp(2x) + 1) loses what is small; far out the exponential is infinite, and the quotient 0.
_TANH = """
def tanh_float(x):
    a = tl.abs(x)
    far = tl.fma(libdevice.fast_dividef(1.0, tl.exp2(a * 2.885390043258667) + 1.0), -2.0, 1.0)
    z = x * x
    p = tl.fma(z, 0.016420384868979454, -0.052662983536720276)
    p = tl.fma(p, z, 0.13320590555667877)
    p = tl.fma(p, z, -0.3333294093608856)
    return tl.where(a < 0.55, tl.fma(p, tl.fma(z, x, 0.0), x), libdevice.copysign(far, x))
"""

#: name -> (helpers it calls, source)
SOURCES: dict[str, tuple[tuple[str, ...], str]] = {
    "reduce_large_angles": ((), large_angles.SOURCE),
    "sin_cos": (("reduce_large_angles",), _SIN_COS),
    "log1p_float": ((), _LOG1P),
    "erf_beside_one": ((), ERF_BESIDE_ONE.format(name="erf_beside_one", exp2="tl.exp2")),
    "tanh_float": ((), _TANH),
}
