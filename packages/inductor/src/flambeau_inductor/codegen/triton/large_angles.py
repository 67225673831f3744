"""The reduction of angles that three parts of π/2 do not reach, as PTX.

Out: ``SOURCE``, a Triton function for ``elementary.py``. A thread branches once for four angles: one with a large angle among
them reduces those one by one, in a stretch of code that the others never enter. Triton has no branch of a single thread, and a
vote of the whole block costs more than what it decides on.

The method is Payne and Hanek's ("Radian reduction for trigonometric functions", SIGNUM Newsletter 18, 1983): an angle is
m * 2**(e - 150) with an integer m of 24 bits and e its biased exponent. Of the bits of 2/π only those from 2**(151 - e) down
matter, for those before count whole turns; the product of m and 96 of them, modulo four, is the angle in quarters of a turn with
62 bits behind the point. No float32 comes closer to a whole number of quarters than 2**-30, which leaves 32 of them significant.
``tools/fit_elementary.py`` prints that distance and the bits of 2/π. The first line of the PTX names it and the smallest large
angle for the interpreter (``flambeau_runtime.triton_interpreter``), which does the same in its own way.
"""

from __future__ import annotations

import math
import struct

#: Up to here the quotient with π/2 has so few bits that its products with the parts of π/2 are exact.
LARGEST_ANGLE = 105000.0
#: 2/π in bits, the first of weight 2**8: what the smallest large angle (exponent 143) begins with.
TWO_OVER_PI = (0x00517CC1, 0xB727220A, 0x94FE13AB, 0xE8FA9A6E, 0xE06DB14A, 0xCC9E21C8, 0x20FF28B1)
_FIRST_EXPONENT = 143
#: π/2 over 2**64, a float64: from a fraction of 64 bits to an angle.
_UNIT = math.pi / 2 * 2.0**-64
#: The angles of one branch: as many as a thread loads at once.
_TOGETHER = 4


def _hex(value: float) -> str:
    """A float32 as PTX writes it."""
    return "0f" + struct.pack(">f", value).hex().upper()


def _reduction(angle: str, rest: str, quarters: str, label: str) -> list[str]:
    """One angle: where it is large and finite, ``rest`` and ``quarters`` are written anew."""
    lines = [
        f"abs.f32 a, {angle};",
        f"setp.gt.f32 large, a, {_hex(LARGEST_ANGLE)};",
        "setp.lt.and.f32 large, a, 0f7F800000, large;",
        f"@!large bra {label};",
        "mov.b32 m, a;",
        "shr.u32 e, m, 23;",
        f"sub.u32 e, e, {_FIRST_EXPONENT};",
        "and.b32 m, m, 0x7FFFFF;",
        "or.b32 m, m, 0x800000;",
    ]
    # The four words that the exponent points at, then the three that begin at its bit.
    lines += [f"mov.b32 w{n}, {TWO_OVER_PI[n]:#x};" for n in range(4)]
    for word in range(1, 4):
        lines.append(f"setp.ge.u32 further, e, {32 * word};")
        lines += [f"selp.b32 w{n}, {TWO_OVER_PI[n + word]:#x}, w{n}, further;" for n in range(4)]
    lines += [f"shf.l.wrap.b32 w{n}, w{n + 1}, w{n}, e;" for n in range(3)]
    return [
        *lines,
        # The upper 64 bits of the product, modulo 2**96: two in front of the point, 62 behind it.
        "mul.hi.u32 t, m, w2;",
        "mul.lo.u32 low, m, w1;",
        "mul.hi.u32 high, m, w1;",
        "add.cc.u32 low, low, t;",
        "addc.u32 high, high, 0;",
        "mad.lo.u32 high, m, w0, high;",
        # The nearest quarter, and what is left: the bits behind the point as a signed number.
        "shr.u32 q, high, 30;",
        "bfe.u32 t, high, 29, 1;",
        "add.u32 q, q, t;",
        "mov.b64 d, {low, high};",
        "shl.b64 d, d, 2;",
        "cvt.rn.f64.s64 y, d;",
        f"mul.f64 y, y, 0d{struct.pack('>d', _UNIT).hex().upper()};",
        "cvt.rn.f32.f64 a, y;",
        f"setp.lt.f32 below, {angle}, 0f00000000;",
        "neg.f32 b, a;",
        f"selp.f32 {rest}, b, a, below;",
        "neg.s32 t, q;",
        f"selp.b32 {quarters}, t, q, below;",
        f"{label}:",
    ]


def _assembly() -> tuple[str, str]:
    """The text and its constraints: in angles, rests, quarters, four of each; out rests and quarters."""
    groups = [[f"${group * _TOGETHER + n}" for n in range(_TOGETHER)] for group in range(5)]
    rests, quarters, angles, given_rests, given_quarters = groups
    lines = [
        f"// reduce_large_angles {LARGEST_ANGLE}",
        "{",
        ".reg .pred large, further, below;",
        ".reg .f32 a, b;",
        ".reg .b32 e, m, q, t, low, high, w<4>;",
        ".reg .b64 d;",
        ".reg .f64 y;",
        *(f"mov.b32 {new}, {old};" for new, old in zip(rests + quarters, given_rests + given_quarters, strict=True)),
        f"abs.f32 a, {angles[0]};",
    ]
    for angle in angles[1:]:
        lines += [f"abs.f32 b, {angle};", "max.f32 a, a, b;"]
    lines += [f"setp.gt.f32 large, a, {_hex(LARGEST_ANGLE)};", "@!large bra DONE;"]
    for number, names in enumerate(zip(angles, rests, quarters, strict=True)):
        lines += _reduction(*names, label=f"NEXT{number}")
    # Results are written before everything is read: they may not share registers with what comes in.
    constraints = ["=&f", "=&r", "f", "f", "r"]
    return "\n".join([*lines, "DONE:", "}"]), ",".join(c for c in constraints for _ in range(_TOGETHER))


_TEXT, _CONSTRAINTS = _assembly()

SOURCE = f'''
def reduce_large_angles(x, rest, quarters):
    return tl.inline_asm_elementwise(
        """{_TEXT}""",
        "{_CONSTRAINTS}",
        [x, rest, quarters],
        dtype=(tl.float32, tl.int32),
        is_pure=True,
        pack={_TOGETHER},
    )
'''
