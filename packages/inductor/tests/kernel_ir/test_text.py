"""The printed form of the kernel IR."""

from __future__ import annotations

from kernel_ir.kernels import kernel, sums

from flambeau_inductor.kernel_ir.text import kernel_ir_text


def test_a_loop() -> None:
    """Types and tiles where a variable is defined, its name where it is read; what a loop carries."""
    assert kernel_ir_text("sums", kernel(sums(), "x", "r")) == (
        "kernel sums(in0: *f32, out0: *f32) tiles(x: 16, r: 16) index i32\n"
        "  pid: index = index(program)\n"
        "  xi[x]: index = ((pid * block(x)) + lanes(x))\n"
        "  xmask[x]: bool = in_range(x: xi, 100)\n"
        "  wait\n"
        "  acc1[x, r]: f32 = full(0.0, x, r)\n"
        "  for start below 50 by block(r) carrying acc1\n"
        "    ri[r]: index = (start + lanes(r))\n"
        "    rmask[r]: bool = in_range(r: ri, 50)\n"
        "    v2[x, r]: f32 = load in0[50 * xi + ri] where all(xmask, rmask) else 0\n"
        "    v3[x, r]: f32 = where(rmask, v2, full(0.0))\n"
        "    update acc1 = (acc1 + v3)\n"
        "  red4[x]: f32 = reduce sum(acc1)\n"
        "  store out0[xi] = red4 where xmask\n"
    )
