"""Kernels over lanes: what the validator asks of them, their printed form, and their C++."""

from __future__ import annotations

import pytest
import torch
from attrs import evolve
from kernel_ir.lanes import (
    ADDED,
    AT,
    BEGIN,
    F32,
    IN,
    LIVE,
    LOADED,
    NONE,
    OUT,
    PLACE,
    R0,
    ROW,
    SUM,
    WHERE,
    X0,
    R,
    kernel,
    lanes,
    loaded,
    sums,
)

from flambeau_inductor import kernel_ir as kir
from flambeau_inductor.codegen.cpp.function import function_text
from flambeau_inductor.errors import VerifyError
from flambeau_inductor.expr import ONE, ZERO, Int, Symbol
from flambeau_inductor.kernel_ir.strides import lane_step
from flambeau_inductor.kernel_ir.text import kernel_ir_text
from flambeau_inductor.kernel_ir.verify import verify

KEPT = kir.Pointer("k0", F32)
ROOM = kir.LocalArray(KEPT, kir.Number(50))
LAST = kir.Variable("a_m0", NONE, F32)
BEST, BEST_AT = kir.Variable("m1", R, F32), kir.Variable("m1_at", R, torch.int64)
BEST_BEGINS = kir.Begin("1", (kir.Accumulator("argmax", (BEST, BEST_AT), kir.constant(-1.0, F32)),))
BETTER = kir.Combine("argmax", (BEST, BEST_AT), (LOADED, WHERE), R, LIVE)
PANEL = kir.Panel(kir.Pointer("t0", F32), IN, WHERE, kir.Number(50), False)


def squares(*body: kir.Statement, panel: kir.Panel = PANEL) -> kir.Squares:
    """Of a table of fifty by a hundred."""
    rows, row, size = kir.position("y0"), kir.position("row"), kir.Number(50)
    return kir.Squares("block", PLACE, LIVE, size, 64, rows, kir.Number(0), kir.Number(100), row, (panel,), body)


def run(**changes: object) -> list[kir.Statement]:
    """A scan of what lies in ``k0``."""
    begins = kir.Begin("m0", (kir.Accumulator("sum", (LAST,), kir.constant(0.0, F32)),))
    whole = kir.RunInPlace("sum", LAST, KEPT, kir.Number(50), 64, True)
    return [ROOM, begins, evolve(whole, **changes)]


LEFT, RIGHT, FOUND = (kir.Pointer(name, F32) for name in ("left", "right", "found"))
ARRAYS = [kir.LocalArray(array, kir.Number(4096), whole=True) for array in (LEFT, RIGHT, FOUND)]
COPIED = kir.CopyRows(LEFT, IN, kir.Number(0), kir.Number(50), kir.Number(1), kir.Number(7), 50, 12)
PACKED = kir.Pack(RIGHT, IN, kir.Number(0), 1, 20, 20, 50)
PRODUCT = kir.MultiplyRows(FOUND, 64, LEFT, 50, kir.Number(7), RIGHT, 20, 50, kir.Number(0), kir.Number(20))


def test_good_kernels_pass() -> None:
    """A sum in lanes, an extreme with its place, memory of the call, a scan, squares and products."""
    verify(kernel(*ARRAYS, COPIED, PACKED, PRODUCT, evolve(PRODUCT, along_terms=True)))
    verify(kernel(*sums()))
    verify(kernel(BEST_BEGINS, lanes(loaded(), kir.Update((BEST, BEST_AT), BETTER), carried=(BEST, BEST_AT))))
    store = kir.Store(KEPT, PLACE, LOADED, LIVE)
    verify(kernel(ROOM, lanes(loaded(), store)))
    verify(kernel(*run()))
    panel = kir.Load(
        PANEL.array, kir.total(kir.arith("mul", kir.position("row"), kir.BlockSize("r")), kir.Lanes("r", False)), LIVE
    )
    verify(kernel(squares(kir.Assign((LOADED,), panel))))


UNMASKED = evolve(ADDED, mask=None)
WIDE = kir.Variable("v2", R, torch.float64)
GUARD = kir.Variable("g", R, torch.bool)
BROKEN: list[tuple[list[kir.Statement], str]] = [
    (sums(loaded(None), kir.Update((SUM,), ADDED)), "no mask for the lanes outside of r"),
    (sums(loaded(), kir.Update((SUM,), UNMASKED)), "m0 does not stay neutral in the lanes outside of r"),
    ([BEGIN, lanes(loaded(), kir.Update((SUM,), ADDED))], "updates m0, which it does not carry"),
    ([kir.Assign((SUM,), kir.Full(kir.Number(0.0, F32), F32, R)), lanes(carried=(SUM,))], "no accumulator"),
    ([evolve(BEGIN, accumulators=(evolve(BEGIN.accumulators[0], kind="mean"),))], "no accumulators of mean"),
    ([evolve(BEGIN, accumulators=(evolve(BEGIN.accumulators[0], kind="argmax"),))], "no accumulators of argmax"),
    ([evolve(BEGIN, accumulators=(evolve(BEGIN.accumulators[0], start=kir.constant(0, torch.int64)),))], "does not begin as"),
    (sums(loaded(), kir.Update((SUM,), evolve(ADDED, kind="mean"))), "nothing combines by mean"),
    (sums(loaded(), kir.Update((SUM,), evolve(ADDED, old=(SUM, SUM)))), "takes 1 and 1 operands"),
    (sums(loaded(), kir.Update((SUM,), evolve(ADDED, new=(kir.constant(1, torch.int64),)))), "torch.int64 with torch.float32"),
    (sums(loaded(), kir.Update((SUM,), evolve(ADDED, mask=LOADED))), "its mask is no truth value"),
    ([BEST_BEGINS, lanes(loaded(), kir.Update((BEST,), BETTER), carried=(BEST, BEST_AT))], "1 targets of 2 results"),
    (
        [BEST_BEGINS, lanes(loaded(), kir.Update((BEST, BEST_AT), evolve(BETTER, new=(LOADED, LOADED))), carried=(BEST, BEST_AT))],
        "a place is no position",
    ),
    ([evolve(lanes(), start=LIVE)], "t is read before"),
    ([evolve(lanes(), stop=kir.constant(1.0, F32))], "is no bound of a loop"),
    ([evolve(lanes(), mask=evolve(LIVE, dtype=F32))], "are not the lanes of one tile"),
    ([evolve(lanes(), position=ROW)], "are not the lanes of one tile"),
    ([kir.Points(((kir.position("y0"), kir.constant(1.0, F32)),), ())], "is no bound of a loop"),
    ([lanes(kir.Store(KEPT, PLACE, kir.constant(0.0, F32), LIVE))], "no array of the kernel"),
    ([ROOM, ROOM], "k0 is defined twice"),
    ([evolve(ROOM, start=kir.constant(0, torch.int64))], "does not begin as"),
    ([evolve(ROOM, length=PLACE)], "r0 is read before"),
    ([evolve(ROOM, whole=True)], "no room for whole registers"),
    (run(kind="argmax"), "does not run by argmax"),
    (run(array=OUT), "does not run by sum"),
    (run(running=evolve(LAST, dtype=torch.int64)), "a_m0 is defined as"),
    ([squares(panel=evolve(PANEL, step=PLACE))], "is no bound of a loop"),
    ([squares(panel=evolve(PANEL, memory=KEPT))], "no array of the kernel"),
    ([squares(panel=evolve(PANEL, array=kir.Pointer("t0", torch.float64)))], "is a panel of"),
    ([squares(kir.Update((ROW,), kir.Number(1)))], "updates x0, which it does not carry"),
    ([lanes(loaded(), kir.Assign((GUARD,), kir.AnyLane(LOADED)))], "no mask"),
    ([lanes(loaded(), kir.Assign((LOADED,), LOADED))], "v1 is defined twice"),
    ([*ARRAYS, evolve(COPIED, array=OUT)], "is no array of float32"),
    ([*ARRAYS, evolve(PACKED, memory=KEPT)], "no array of the kernel"),
    ([*ARRAYS, evolve(PACKED, index=PLACE)], "r0 is read before"),
    ([*ARRAYS, evolve(COPIED, count=kir.constant(1.0, F32))], "is no bound of a loop"),
    ([*ARRAYS, evolve(PRODUCT, result=LEFT)], "left is an operand of the product"),
    ([*ARRAYS, evolve(PRODUCT, left_step=49)], "rows that overlap"),
    ([*ARRAYS, evolve(PRODUCT, packed=OUT)], "is no array of float32"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "message"), BROKEN, ids=[message for _, message in BROKEN])
def test_broken_kernels_are_refused(body: list[kir.Statement], message: str) -> None:
    """Each rule by its name."""
    with pytest.raises(VerifyError, match=message):
        verify(kernel(*body))


def test_lanes_that_store_to_one_place_are_refused() -> None:
    """A tile of points is not one of a row: every lane has a place of its own, or there is one lane."""
    x, place, live = frozenset({"x"}), kir.position("x1", "x"), kir.Variable("t", frozenset({"x"}), torch.bool)
    walk = kir.ForLanes(
        "body", place, live, kir.Number(0), kir.Number(9), (kir.Store(OUT, AT, kir.constant(1.0, F32)),)
    )
    points = kir.Points(((ROW, kir.Number(100)),), (walk,))
    broken = kir.Kernel(("x",), 64, (OUT,), (), (), (points,), called=True)
    with pytest.raises(VerifyError, match=r"programs along \['x'\] store to the same place"):
        verify(broken)
    verify(evolve(broken, blocks=(("x", 1),)))
    assert broken.body[0] is points and live.tiles == x


def test_text() -> None:
    assert kernel_ir_text(
        "sums",
        kernel(
            *sums(), *run(), lanes(kir.Assign((kir.Variable("s", NONE, torch.bool),), kir.AnyLane(LIVE)), label="more")
        ),
    ) == (
        "kernel sums(b0: *f32, b1: *f32, begin: index, end: index) tiles(r: ) index i64\n"
        "  points of x0 below 100\n"
        "    begin 0: m0[r]: f32 = full(0.0) by sum\n"
        "    lanes body: r0[r]: index from 0 below 50 mask t carrying m0 in 4 parts\n"
        "      v1[r]: f32 = load b0[50 * x0 + r0] where t\n"
        "      update m0 = combine sum(m0; v1 where t)\n"
        "    f0_m0: f32 = reduce sum(m0)\n"
        "    store b1[x0] = f0_m0\n"
        "    local k0[50]: f32\n"
        "    begin m0: a_m0: f32 = full(0.0) by sum\n"
        "    run sum in k0[50 of 64] after a_m0 in any order\n"
        "    lanes more: r0[r]: index from 0 below 50 mask t\n"
        "      s: bool = any_lane(t)\n"
    )


def test_squares_as_text() -> None:
    assert kernel_ir_text("turned", kernel(squares(loaded()))).splitlines()[2:] == [
        "    squares block: r0[r]: index below 50 by 64 mask t, y0 from 0 below 100, row row",
        "      panel t0: *f32 from b0[50 * x0 + r0] step 50",
        "      v1[r]: f32 = load b0[50 * x0 + r0] where t",
    ]


def test_products_as_text() -> None:
    """In the IR and in C++."""
    body = kernel(*ARRAYS, COPIED, PACKED, PRODUCT, evolve(PRODUCT, along_terms=True))
    assert kernel_ir_text("product", body).splitlines()[-4:] == [
        "    copy 7 of left[12, 50] from b0[0] steps 50, 1",
        "    pack right[50, 20] from b0[0] steps 20, 1",
        "    multiply 7 of found step 64 = left step 50 @ right[50, 20] columns 0 below 20",
        "    multiply 7 of found step 64 = left step 50 @ right[50, 20] terms 0 below 20",
    ]
    found = function_text(body, (), 4)
    assert "fb::copy_rows<12, 50>(b0 + (0), 50, 1, 7, left);" in found.lines
    assert "fb::pack<20, 1, 20>(b0 + (0), 50, right);" in found.lines
    assert "fb::multiply_rows<20>(left, 50, 7, 50, right, 0, 20, found, 64);" in found.lines
    assert "fb::multiply_terms<20, 50>(left, 50, 7, right, 0, 20, found, 64);" in found.lines


def test_cpp() -> None:
    """The body of a loop over lanes is written once, for full blocks side by side and for what is left; the kernel says which functions it calls."""
    found = function_text(kernel(*sums(parts=2)), (), 4)
    assert "const auto v1 = fb::load<W>(b0 + (50 * x0 + r0), t);" in found.lines
    assert "a.m0 = fb::keep<W>(t, fb::Add{}(a.m0, v1), a.m0);" in found.lines
    assert "{ body(fb::Full{}, at + 0 * W, s0_0); body(fb::Full{}, at + 1 * W, s0_1); }" in found.lines
    assert "a0.m0 = fb::Add{}(a0.m0, fb::Add{}(s0_0.m0, s0_1.m0));" in found.lines
    assert found.functions == {"load", "keep", "Add", "first", "fold", "store1"}
    assert not found.fails and found.scalar_kinds == ""
    assert function_text(kernel(lanes(loaded(), kir.Check(LOADED, LOADED, (LIVE,)))), (), 4).fails


def test_steps_from_lane_to_lane() -> None:
    """Of expressions, of offsets into memory of the call, and of nothing that a loaded value takes part in."""
    there = Symbol("i0", bound=Int(100))
    position = kir.AsIndex(LOADED)
    assert lane_step(WHERE) is ONE and lane_step(PLACE) is ONE and lane_step(kir.Lanes("r", False)) is ONE
    assert lane_step(AT) is ZERO and lane_step(kir.Number(3)) is ZERO and lane_step(ROW) is ZERO
    assert lane_step(kir.Index(R0 * 3 + X0, WHERE.names, R)) is Int(3)
    assert lane_step(kir.arith("sub", PLACE, ROW)) is ONE and lane_step(kir.arith("add", ROW, PLACE)) is ONE
    assert lane_step(kir.arith("sub", ROW, PLACE)) is None and lane_step(kir.arith("mul", PLACE, ROW)) is None
    assert lane_step(kir.arith("mul", ROW, ROW)) is ZERO
    assert lane_step(kir.Index(there + R0, ((there, position), (R0, PLACE)), R)) is None
    assert lane_step(kir.Index(R0 // 4, ((R0, PLACE),), R)) is None
