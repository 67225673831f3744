"""Kernels over lanes in the IR, written by hand."""

from __future__ import annotations

import torch

from flambeau_inductor import kernel_ir as kir
from flambeau_inductor.expr import Int, Symbol

F32 = torch.float32
R, NONE = frozenset({"r"}), frozenset[str]()
X0, R0 = Symbol("x0", bound=Int(100)), Symbol("r0", bound=Int(50))
IN, OUT = kir.Pointer("b0", F32), kir.Pointer("b1", F32)
ROW, PLACE = kir.position("x0"), kir.position("r0", "r")
LIVE = kir.Variable("t", R, torch.bool)
SLICE = (kir.position("begin"), kir.position("end"))
SUM = kir.Variable("m0", R, F32)
TOTAL, LOADED = kir.Variable("f0_m0", NONE, F32), kir.Variable("v1", R, F32)
WHERE = kir.Index(X0 * 50 + R0, ((X0, ROW), (R0, PLACE)), R)
AT = kir.Index(X0, ((X0, ROW),), NONE)
ADDED = kir.Combine("sum", (SUM,), (LOADED,), R, LIVE)
BEGIN = kir.Begin("0", (kir.Accumulator("sum", (SUM,), kir.constant(0.0, F32)),))


def lanes(
    *body: kir.Statement, carried: tuple[kir.Variable, ...] = (), parts: int = 0, label: str = "body"
) -> kir.ForLanes:
    """Over a row of fifty."""
    return kir.ForLanes(label, PLACE, LIVE, kir.Number(0), kir.Number(50), body, carried, parts)


def loaded(mask: kir.Node | None = LIVE) -> kir.Assign:
    """What the lanes have of the row."""
    return kir.Assign((LOADED,), kir.Load(IN, WHERE, mask))


def sums(*inside: kir.Statement, parts: int = 4) -> list[kir.Statement]:
    """``b1[x0] = sum of b0[x0, r0]``; or with ``inside`` in place of what is done in lanes."""
    walk = lanes(*(inside or (loaded(), kir.Update((SUM,), ADDED))), carried=(SUM,), parts=parts)
    return [BEGIN, walk, kir.Assign((TOTAL,), kir.Reduce("sum", (SUM,))), kir.Store(OUT, AT, TOTAL)]


def kernel(*body: kir.Statement) -> kir.Kernel:
    """Around what is done for each row."""
    points = kir.Points(((ROW, kir.Number(100)),), tuple(body))
    return kir.Kernel(("r",), 64, (IN, OUT), SLICE, (), (points,), called=True)
