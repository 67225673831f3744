"""Fits the polynomials of the elementary functions that generated Triton kernels carry (``codegen/triton/elementary.py``).

    python tools/fit_elementary.py

Out: the parts of π/2, the bits of 2/π, the float32 coefficients of each polynomial, lowest degree first, and the largest error
of the approximation itself (before any rounding while it is evaluated) in units of 2**-24. Lawson's iteration turns least squares
into minimax; coefficients are rounded to float32 one after the other, lowest degree first, and the later ones fitted anew, so that
they make up for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import mpmath as mp
import numpy as np

mp.mp.dps = 80
Points = np.ndarray


def exact(function: Callable[[mp.mpf], mp.mpf], points: Points) -> Points:
    """``function`` with 80 digits, then rounded to float64."""
    return np.array([float(function(mp.mpf(point))) for point in points])


def minimax(target: Points, basis: Points, weight: Points, rounds: int = 300) -> Points:
    """The coefficients over the columns of ``basis`` whose largest weighted distance from ``target`` is smallest."""
    emphasis = np.ones(len(target))
    for _ in range(rounds):
        scale = weight * np.sqrt(emphasis)
        rows = basis * scale[:, None]
        norms = np.linalg.norm(rows, axis=0)
        found = np.linalg.lstsq(rows / norms, target * scale, rcond=None)[0] / norms
        distance = np.abs((basis @ found - target) * weight)
        emphasis = np.maximum(emphasis * distance, 1e-300)
        emphasis = np.maximum(emphasis / emphasis.sum(), 1e-12)
    return found


def in_float32(target: Points, powers: Points, weight: Points) -> tuple[list[float], float]:
    """Coefficients that are float32 numbers, and the largest weighted distance that they leave."""
    done: list[float] = []
    for count in range(powers.shape[1]):
        rest = target - powers[:, :count] @ np.array(done)
        done.append(float(np.float32(minimax(rest, powers[:, count:], weight)[0])))
    return done, float(np.max(np.abs((powers @ np.array(done) - target) * weight)))


def powers_of(points: Points, exponents: Sequence[int]) -> Points:
    return np.stack([points**exponent for exponent in exponents], 1)


def sine() -> tuple[list[float], float]:
    """(sin(r) / r - 1) / r² in powers of r² up to π/4; the relative error of the sine counts."""
    r = np.linspace(1e-3, np.pi / 4 * 1.001, 2000)
    return in_float32(exact(lambda v: (mp.sin(v) / v - 1) / v**2, r), powers_of(r, (0, 2, 4)), r**3 / np.sin(r))


def cosine() -> tuple[list[float], float]:
    """(cos(r) - 1 + r² / 2) / r⁴ in powers of r² up to π/4; the relative error of the cosine counts."""
    r = np.linspace(1e-3, np.pi / 4 * 1.001, 2000)
    target = exact(lambda v: (mp.cos(v) - 1 + v**2 / 2) / v**4, r)
    return in_float32(target, powers_of(r, (0, 2, 4)), r**4 / np.cos(r))


def logarithm() -> tuple[list[float], float]:
    """(log(1 + t) - t) / t² in powers of t where 1 + t is between √½ and √2; the relative error of the logarithm counts.

    Kernels have 4t: the coefficients are those of its powers.
    """
    t = np.concatenate([np.linspace(-0.29291, -1e-3, 1200), np.linspace(1e-3, 0.41423, 1600)])
    whole = exact(mp.log1p, t)
    found, error = in_float32((whole - t) / t**2, powers_of(t, range(8)), t**2 / np.abs(whole))
    return [coefficient / 4.0 ** (power + 2) for power, coefficient in enumerate(found)], error


def error_function() -> tuple[list[float], float]:
    """log2(1 - erf(a)) in powers of a from 0 to 4, without a constant; the absolute error of erf(a) counts."""
    a = np.linspace(1e-5, 4.0, 3000)
    rest = exact(mp.erfc, a)
    target = exact(lambda v: mp.log(mp.erfc(v), 2), a)
    return in_float32(target, powers_of(a, range(1, 9)), np.maximum(rest * np.log(2), 3e-9))


def hyperbolic_tangent() -> tuple[list[float], float]:
    """(tanh(x) / x - 1) / x² in powers of x² up to 0.55; the relative error of the tangent counts."""
    x = np.linspace(1e-3, 0.551, 2000)
    target = exact(lambda v: (mp.tanh(v) / v - 1) / v**2, x)
    return in_float32(target, powers_of(x, (0, 2, 4, 6)), x**3 / np.tanh(x))


def rounded_down(value: mp.mpf) -> float:
    """The largest float32 that is not above ``value``."""
    found = np.float32(float(value))
    return float(found if mp.mpf(float(found)) <= value else np.nextafter(found, np.float32(-np.inf)))


def closest_to_a_quarter() -> mp.mpf:
    """How close m * 2**(e - 150) comes to a whole number of quarters of a turn, for 24 bits of m and the exponents of large angles.

    The convergents of 2**(e - 150) * 2/π say for which m (Khinchin, "Continued Fractions", theorem 16).
    """
    least = mp.mpf(1)
    for exponent in range(143, 255):
        rest = whole = mp.frac(mp.ldexp(2 / mp.pi, exponent - 150))
        before, denominator = 0, 1
        while denominator < 2**24:
            least = min(least, abs(denominator * whole - mp.nint(denominator * whole)))
            rest = 1 / mp.frac(rest)
            before, denominator = denominator, int(rest) * denominator + before
    return least


if __name__ == "__main__":
    for fit in (sine, cosine, logarithm, error_function, hyperbolic_tangent):
        coefficients, error = fit()
        print(f"{fit.__name__}: {error * 2**24:.3f}", *map(repr, coefficients), sep="\n    ")
    rest = mp.pi / 2
    for number in range(3):
        part = rounded_down(rest)
        rest -= mp.mpf(part)
        print(f"a quarter of a turn, part {number + 1}:", repr(part))
    print(
        "large angles, no closer to a whole number of quarters than 2 **", mp.nstr(mp.log(closest_to_a_quarter(), 2), 4)
    )
    bits = int(mp.floor(mp.ldexp(2 / mp.pi, 7 * 32 - 9)))
    print("two over pi in bits:", *(f"{bits >> 32 * word & 0xFFFFFFFF:#010x}" for word in reversed(range(7))))
